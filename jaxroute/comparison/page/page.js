"use strict";
// The page is complete without this script.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Tables are sorted by a click on a title, each part by itself; a third click restores the first order.
  const compare = (a, b) => (isNaN(a) || isNaN(b) ? a.localeCompare(b, "en", { numeric: true }) : a - b);
  const next = { none: "ascending", ascending: "descending", descending: "none" };
  for (const table of all("table")) {
    const heads = all("thead th", table);
    const parts = all("tbody", table).map((body) => [body, all("tr:not(.group)", body)]);
    heads.forEach((head, column) => {
      const button = document.createElement("button"), title = head.textContent;
      button.type = "button";
      button.textContent = title;
      head.replaceChildren(button);
      // Browsers repeat titles on each sheet of paper only without a button in them.
      addEventListener("beforeprint", () => head.replaceChildren(title));
      addEventListener("afterprint", () => head.replaceChildren(button));
      button.addEventListener("click", () => {
        const order = next[head.ariaSort ?? "none"], sign = order === "descending" ? -1 : 1;
        for (const other of heads) other.removeAttribute("aria-sort");
        if (order !== "none") head.setAttribute("aria-sort", order);
        const key = (row) => row.cells[column].dataset.key ?? "";
        for (const [body, rows] of parts) {
          const sorted = rows.filter(key).sort((a, b) => sign * compare(key(a), key(b)));
          body.append(...(order === "none" ? rows : [...sorted, ...rows.filter((row) => !key(row))]));
        }
      });
    });
  }

  for (const box of all(".code")) {
    const code = box.querySelector("code"), button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-live", "polite");
    button.addEventListener("click", async () => {
      getSelection().selectAllChildren(code);
      const done = await navigator.clipboard?.writeText(code.textContent).then(() => true, () => false);
      button.textContent = done || document.execCommand("copy") ? "Copied" : "Selected";
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    });
    box.append(button);
  }

  // Folded parts are printed too.
  addEventListener("beforeprint", () => { for (const fold of all("details")) fold.open = true; });
})();
