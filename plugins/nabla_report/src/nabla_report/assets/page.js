"use strict";
// Filters, opening and closing, sorting. The page says everything without any of it.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  const filter = document.getElementById("filter");
  if (filter) {
    const issues = all(".issue").map((element) => ({
      element, severity: element.dataset.severity, text: element.textContent.toLowerCase(),
    }));
    const words = document.getElementById("filter-text");
    const count = document.getElementById("filter-count");
    const apply = () => {
      const wanted = new Set(all("input[name=severity]:checked", filter).map((box) => box.value));
      const sought = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const issue of issues) {
        const fits = wanted.has(issue.severity) && sought.every((word) => issue.text.includes(word));
        issue.element.hidden = !fits;
        shown += fits ? 1 : 0;
      }
      count.textContent = `${shown} of ${issues.length} shown`;
    };
    filter.hidden = false;
    filter.addEventListener("input", apply);
    filter.addEventListener("submit", (event) => event.preventDefault());
    for (const button of all("button[data-toggle]", filter)) {
      button.addEventListener("click", () => {
        for (const details of all(".issue > details")) details.open = button.dataset.toggle === "open";
      });
    }
    const reveal = () => {
      const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
      const issue = target && target.closest(".issue");
      if (!issue) return;
      issue.hidden = false;
      for (const details of all(":scope > details", issue)) details.open = true;
    };
    addEventListener("hashchange", reveal);
    reveal();
  }

  for (const table of all("table.sortable")) {
    all("thead th", table).forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        all("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const key = (row) => row.cells[column].textContent;
        const order = (a, b) => {
          const [x, y] = [Number(key(a)), Number(key(b))];
          if (Number.isNaN(x) || Number.isNaN(y)) return key(a).localeCompare(key(b));
          return x - y;
        };
        const body = table.tBodies[0];
        body.append(...[...body.rows].sort((a, b) => (up ? order(a, b) : order(b, a))));
      });
    });
  }

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = all("details:not([open])", document.getElementById("issues") || document);
    for (const details of closed) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of closed) details.open = false;
  });
})();
