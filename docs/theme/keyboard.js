"use strict";
// The keyboard reaches tables that scroll. The theme wraps tables only after the page is loaded.
function reachTables() {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) {
    if (table.scrollWidth > table.clientWidth) table.tabIndex = 0;
    else table.removeAttribute("tabindex");
  }
}
new MutationObserver(reachTables).observe(document.body, {childList: true, subtree: true});
addEventListener("resize", reachTables);
