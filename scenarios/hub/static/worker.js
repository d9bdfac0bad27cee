// The worker of an invitation's page: starts Python, and takes part. All that it loads and sends goes to the hub.
"use strict";
const CODE = "/code";
const PYTHON = new URL("/pyodide/", location.href).href;
importScripts(`${PYTHON}pyodide.js`);

function say(kind, text) {
  postMessage({ kind, text });
}

// Two private files of the browser, which only one tab can open at a time.
async function openStored(name) {
  const folder = await navigator.storage.getDirectory();
  try {
    return await Promise.all([0, 1].map(async (number) => {
      const file = await folder.getFileHandle(`${name}.${number}`, { create: true });
      return await file.createSyncAccessHandle();
    }));
  } catch (error) {
    throw new Error(`This invitation is open in another tab, or this browser keeps no files (${error.name}).`);
  }
}

function readStored(file) {
  const content = new Uint8Array(file.getSize());
  file.read(content, { at: 0 });
  return content;
}

function writeStored(file, content) {
  file.truncate(0);
  if (file.write(content, { at: 0 }) !== content.length) throw new Error("This browser has no room for the visit's files.");
  file.flush();
}

async function keepInMemory(python, folder, file) {
  if (!file) return "";
  python.FS.mkdirTree(folder);
  const path = `${folder}/${file.name}`;
  python.FS.writeFile(path, new Uint8Array(await file.arrayBuffer()));
  return path;
}

async function takePart(asked) {
  const stored = await openStored(asked.name);
  try {
    say("told", "Python is starting in this browser …");
    const python = await loadPyodide({ indexURL: PYTHON, packageBaseUrl: PYTHON, lockFileURL: `${PYTHON}pyodide-lock.json` });
    const problems = [];
    await python.loadPackage(asked.packages, { messageCallback: () => {}, errorCallback: (problem) => problems.push(problem) });
    if (problems.length) throw new Error(problems.join(" "));
    python.unpackArchive(await (await fetch(`${PYTHON}fedsvm.zip`)).arrayBuffer(), "zip", { extractDir: CODE });
    python.pyimport("sys").path.insert(0, CODE);
    const given = {
      link: asked.link,
      policy: asked.policy,
      data: await keepInMemory(python, "/data", asked.data),
      part: await keepInMemory(python, "/part", asked.part),
      tell: (sentence) => say("told", sentence),
      read: (number) => readStored(stored[number]),
      write: (number, content) => writeStored(stored[number], content),
    };
    const problem = python.pyimport("fedsvm.scenarios.hub.browser").run_in_worker(given);
    for (const name of ["model.npz", "predictions.csv", "task.receipt"]) {
      const path = `visits/${name}`;
      if (python.FS.analyzePath(path).exists) postMessage({ kind: "kept", name, content: python.FS.readFile(path) });
    }
    say(problem ? "failed" : "done", problem);
  } finally {
    stored.forEach((file) => file.close());
  }
}

onmessage = (message) => takePart(message.data).catch((error) => say("failed", error.message));
