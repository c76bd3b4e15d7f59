"use strict";
// All of this is comfort: the page says everything without it.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // What a mark says, at once and also when it is tapped.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  const show = (mark) => {
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const at = mark.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const width = document.documentElement.clientWidth;
    const left = Math.max(8, Math.min(at.left + at.width / 2 - own.width / 2, width - own.width - 8));
    const above = at.top - own.height - 6;
    tip.style.left = `${left + scrollX}px`;
    tip.style.top = `${(above > 4 ? above : at.bottom + 6) + scrollY}px`;
  };
  for (const mark of all("svg .hit")) {
    const title = mark.querySelector("title");
    mark.dataset.tip = title.textContent;
    title.remove();
    mark.addEventListener("pointerenter", () => show(mark));
    mark.addEventListener("click", () => show(mark));
    mark.addEventListener("pointerleave", () => { tip.hidden = true; });
  }
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  // One approach at a time: point at its name, line or mark.
  for (const picture of all("svg:not(.symbol)")) {
    const focus = (event) => {
      const series = event.target.closest?.("[data-s]")?.dataset.s;
      picture.classList.toggle("focus", series !== undefined);
      for (const part of all("[data-s]", picture)) part.classList.toggle("on", part.dataset.s === series);
    };
    picture.addEventListener("pointerover", focus);
    picture.addEventListener("pointerleave", focus);
  }

  // Tables sort by a click on a title, each part by itself; a third click brings the first order back.
  for (const table of all("table")) {
    const heads = all("thead th", table);
    const bodies = all("tbody", table).map((body) => ({ body, rows: [...body.rows].filter((row) => !row.classList.contains("group")) }));
    const compare = (a, b) => {
      const x = Number(a), y = Number(b);
      return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
    };
    heads.forEach((head, column) => {
      const button = document.createElement("button"), title = head.textContent;
      button.type = "button";
      button.textContent = title;
      head.replaceChildren(button);
      // Browsers repeat the titles on each sheet of paper only if there is no button in them.
      addEventListener("beforeprint", () => head.replaceChildren(title));
      addEventListener("afterprint", () => head.replaceChildren(button));
      button.addEventListener("click", () => {
        const next = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort") ?? "none"];
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        if (next !== "none") head.setAttribute("aria-sort", next);
        for (const { body, rows } of bodies) {
          const keyed = rows.map((row) => [row.cells[column].dataset.key, row]);
          const full = keyed.filter(([key]) => key !== undefined && key !== "");
          const empty = keyed.filter(([key]) => key === undefined || key === "");
          const sign = next === "descending" ? -1 : 1;
          if (next !== "none") full.sort((a, b) => sign * compare(a[0], b[0]));
          body.append(...(next === "none" ? rows : [...full, ...empty].map(([, row]) => row)));
        }
      });
    });
  }

  // Copying a command.
  for (const box of all(".code")) {
    const code = box.querySelector("code");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-live", "polite");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        const selection = getSelection();
        selection.selectAllChildren(code);
        button.textContent = document.execCommand("copy") ? "Copied" : "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    });
    box.append(button);
  }

  // On paper, what is folded is open.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("details:not([open])");
    for (const fold of folded) fold.open = true;
  });
  addEventListener("afterprint", () => {
    for (const fold of folded) fold.open = false;
  });
})();
