// Filters and sorting of the table of a report.
const table = document.getElementById("rows");
const rows = [...table.tBodies[0].rows];
const text = document.getElementById("text");
const status = document.getElementById("status");

function filter() {
  const wanted = text.value.toLowerCase();
  let shown = 0;
  for (const row of rows) {
    const fits = row.textContent.toLowerCase().includes(wanted);
    row.hidden = !fits || (status?.value && row.className !== status.value);
    shown += !row.hidden;
  }
  document.getElementById("shown").textContent = `${shown} of ${rows.length} rows`;
}

function sort(column, header) {
  const descending = header.ariaSort === "ascending";
  for (const other of table.tHead.rows[0].cells) other.ariaSort = "none";
  header.ariaSort = descending ? "descending" : "ascending";
  const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const compare = (a, b) => key(a).localeCompare(key(b), "en", { numeric: true });
  rows.sort((a, b) => (descending ? compare(b, a) : compare(a, b)));
  table.tBodies[0].append(...rows);
}

[...table.tHead.rows[0].cells].forEach((header, column) => {
  header.querySelector("button")?.addEventListener("click", () => sort(column, header));
});
text.addEventListener("input", filter);
status?.addEventListener("change", filter);
filter();
