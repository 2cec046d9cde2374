// Entries of the index lead to empty elements, for which Sphinx 9.0 makes no summary and then appends null.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;
  const summary = Search.makeSearchSummary;
  Search.makeSearchSummary = (page, words, anchor) =>
    summary(page, words, anchor) ?? summary(page, words) ?? document.createElement("p");
});
