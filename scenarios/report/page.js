"use strict";
// What a mark of a plot stands for, beside the pointer: of the nearest mark within reach.
const tip = document.createElement("div");
tip.id = "tip";
document.body.append(tip);
const REACH = 26;
function show(text, x, y) {
  tip.textContent = text;
  tip.style.visibility = "visible";
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4)) + "px";
  tip.style.top = (y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18) + "px";
}
function hide() { tip.style.visibility = "hidden"; }
for (const plot of document.querySelectorAll("svg[data-plot]")) {
  const title = plot.querySelector("title"); // read aloud as before, and not shown as a browser shows titles
  plot.setAttribute("aria-label", title.textContent);
  title.remove();
  plot.addEventListener("pointermove", (event) => {
    const own = event.target.closest("[data-tip]");
    if (own) return show(own.dataset.tip, event.clientX, event.clientY);
    let nearest = null, least = REACH;
    for (const mark of plot.querySelectorAll("[data-mark]")) {
      if (mark.closest(".hidden")) continue;
      const box = mark.getBoundingClientRect();
      const far = Math.hypot(box.x + box.width / 2 - event.clientX, box.y + box.height / 2 - event.clientY);
      if (far < least) [least, nearest] = [far, mark];
    }
    if (nearest) show(nearest.dataset.tip, event.clientX, event.clientY);
    else hide();
  });
  plot.addEventListener("pointerleave", hide);
}
addEventListener("scroll", hide, {passive: true});
// Keys show and hide their series.
for (const key of document.querySelectorAll("button.key")) {
  key.addEventListener("click", () => {
    const shown = key.getAttribute("aria-pressed") === "true";
    key.setAttribute("aria-pressed", String(!shown));
    for (const mark of key.closest("figure").querySelectorAll(`svg[data-plot] [data-series="${key.dataset.of}"]`))
      mark.classList.toggle("hidden", shown);
  });
}
// A choice shows one of several pictures.
for (const choice of document.querySelectorAll("select[data-choice]")) {
  const pictures = [...choice.closest("figure").querySelectorAll("[data-picture]")];
  const choose = () => pictures.forEach((each, number) => each.classList.toggle("hidden", number !== choice.selectedIndex));
  choice.addEventListener("change", choose);
  choose();
}
// What is there to be copied; the button says what came of it.
for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", async () => {
    const text = document.getElementById(button.dataset.of).textContent;
    try { await navigator.clipboard.writeText(text); button.textContent = "copied"; }
    catch { getSelection().selectAllChildren(document.getElementById(button.dataset.of)); button.textContent = "selected"; }
  });
}
// The keyboard reaches everything that scrolls.
const scrollable = document.querySelectorAll(".scroll, .command code, pre");
function reachScrollable() {
  for (const region of scrollable) {
    if (region.scrollWidth > region.clientWidth) region.tabIndex = 0;
    else region.removeAttribute("tabindex");
  }
}
addEventListener("resize", reachScrollable);
reachScrollable();
// Heads of tables sort their columns.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), row = head.parentElement, body = row.closest("table").tBodies[0];
    const place = [...row.cells].indexOf(head), up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of row.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = (line) => line.cells[place].dataset.value ?? line.cells[place].textContent;
    const order = (a, b) => {
      const [x, y] = [value(a), value(b)], difference = Number(x) - Number(y);
      if (x === "" || y === "") return (x === "") - (y === "");
      return (up ? 1 : -1) * (Number.isNaN(difference) ? x.localeCompare(y) : difference);
    };
    body.append(...[...body.rows].sort(order));
  });
}
