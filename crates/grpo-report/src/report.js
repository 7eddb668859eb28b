"use strict";
// Sorts and filters the tables that have controls. Without it the tables are shown as a whole.
document.querySelectorAll("form.controls").forEach((controls) => {
  const table = document.getElementById(controls.dataset.table);
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const [text, step, count] = ["input", "select", "output"].map((name) => controls.querySelector(name));
  controls.hidden = false;

  const key = (row, column) => {
    const content = row.cells[column].textContent.trim();
    const number = Number(content);
    return content !== "" && !Number.isNaN(number) ? number : content;
  };
  const compare = (a, b) => {
    // Cells without a number come last in both directions.
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return 0;
  };
  const sort = (column, isNumeric, direction) => {
    rows.sort((one, other) => {
      const [a, b] = [key(one, column), key(other, column)];
      if (isNumeric && (typeof a === "string" || typeof b === "string")) return compare(a, b);
      const order = isNumeric ? a - b : String(a).localeCompare(String(b));
      return direction * order;
    });
    body.append(...rows);
  };
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    const isNumeric = head.dataset.kind === "number";
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      // The first click on a number brings the highest to the top.
      const first = isNumeric ? "descending" : "ascending";
      const next = before === null ? first : before === "ascending" ? "descending" : "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", next);
      sort(column, isNumeric, next === "ascending" ? 1 : -1);
    });
  });

  const filter = () => {
    const words = text.value.toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const fits = (!words || row.textContent.toLowerCase().includes(words)) &&
        (!step || !step.value || row.dataset.step === step.value);
      row.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    count.textContent = `${shown} of ${rows.length} rows`;
  };
  text.addEventListener("input", filter);
  if (step) step.addEventListener("change", filter);
  filter();
});
