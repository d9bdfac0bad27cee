// The form of an invitation's page by which a participant computes in this browser.
"use strict";

const form = document.getElementById("browser");
const log = document.getElementById("visit");
const kept = document.getElementById("kept");

function tell(text, isProblem) {
  const line = document.createElement("li");
  line.textContent = text;
  if (isProblem) line.className = "problem";
  log.append(line);
}

function offer({ name, content }) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content]));
  link.download = name;
  link.textContent = name;
  const item = document.createElement("li");
  item.append(link);
  kept.append(item);
}

function end(problem) {
  if (problem) tell(problem, true);
  form.querySelector("button").disabled = false;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  log.replaceChildren();
  kept.replaceChildren();
  const data = form.elements.data.files[0];
  const reader = Object.entries(JSON.parse(form.dataset.readers)).find(([ending]) => data.name.endsWith(ending));
  if (!reader) return tell("This page cannot read such a file; use one of the kinds that it names.", true);
  form.querySelector("button").disabled = true;
  const worker = new Worker("/static/worker.js");
  worker.onerror = (error) => {
    worker.terminate();
    end(error.message || "This browser cannot start Python.");
  };
  worker.onmessage = ({ data: said }) => {
    if (said.kind === "told") tell(said.text, false);
    else if (said.kind === "kept") offer(said);
    else {
      worker.terminate();
      end(said.text);
    }
  };
  worker.postMessage({
    name: `fedsvm-${form.dataset.token}`,
    link: location.hash ? location.href : form.dataset.link,
    packages: [...form.dataset.packages.split(" "), reader[1]],
    data,
    part: form.elements.part?.files[0],
    policy: form.elements.policy.value,
  });
});

if (!window.isSecureContext || !navigator.storage?.getDirectory) {
  tell("This browser keeps no private files for this page: open the hub by https, or use the command above.", true);
  form.querySelector("button").disabled = true;
}
