// The page of the explorer. The server draws everything; its address has the whole state, which this script changes.
let form = document.getElementById("controls");
const problem = document.getElementById("problem");
const stage = document.querySelector(".stage");
const editor = document.createElement("input");
let request, timer, turned;
let wanted; // the last address that was asked for, whose answer may be on its way

const find = (id) => document.getElementById(id);
const selector = ({ dataset }) => `[data-name="${dataset.name}"][data-pixel="${dataset.pixel}"]`;
const state = () => new URLSearchParams(find("scene").dataset.state);

// Show an address; a sentence says why if there is nothing to show, and the last pictures are dimmed.
async function show(query) {
  wanted = query;
  request?.abort();
  request = new AbortController();
  try {
    const answer = await (await fetch(`/scene?${query}`, { signal: request.signal })).json();
    problem.textContent = answer.problem;
    stage.classList.toggle("stale", Boolean(answer.problem));
    find("words").classList.toggle("stale", Boolean(answer.problem));
    if (!answer.problem) replace(answer);
    return !answer.problem;
  } catch (error) {
    if (error.name === "AbortError") return false;
    problem.textContent = "The server does not answer: start mpsref explore again.";
    stage.classList.add("stale");
    return stop();
  }
}

function replace({ sum, scene, words, fields, operation, form: controls }) {
  const focus = document.activeElement.dataset.pixel ? selector(document.activeElement) : null;
  const { id, name: field } = focus ? {} : document.activeElement;
  const scrolled = [...document.querySelectorAll(".pictures, .sides")].map((row) => row.scrollLeft);
  const open = [...document.querySelectorAll("main details[open]")].map((details) => details.id);
  const old = state();
  find("sum").innerHTML = sum;
  find("scene").outerHTML = scene;
  if (["case", "values"].some((one) => old.get(one) !== state().get(one))) find("words").outerHTML = words;
  if (operation !== form.dataset.of) form.outerHTML = controls; // which has other fields
  form = find("controls");
  document.querySelectorAll(".pictures, .sides").forEach((row, k) => (row.scrollLeft = scrolled[k] ?? 0));
  for (const name of open) find(name)?.setAttribute("open", "");
  for (const [name, value] of Object.entries(fields)) {
    const field = form.elements[name];
    if (!field || field === document.activeElement) continue;
    if (field.type === "checkbox") field.checked = value;
    else field.value = value;
    if (field.type === "range") field.nextElementSibling.textContent = value;
  }
  begin();
  if (focus) find("scene").querySelector(focus)?.focus();
  else if (id === "play" || id === "step") find(id).focus();
  else if (field) form.elements[field]?.focus();
}

// Let the tab key reach one pixel of each picture, and the address bar say what is shown.
function begin() {
  for (const svg of document.querySelectorAll("figure svg")) {
    svg.querySelector("[data-pixel]")?.setAttribute("tabindex", "0");
  }
  if (timer) find("play").textContent = "Stop";
  wanted = state();
  for (const link of document.querySelectorAll("nav a")) {
    link.ariaCurrent = new URL(link.href).searchParams.get("case") === wanted.get("case") ? "page" : null;
  }
  history.replaceState(null, "", `/?${find("scene").dataset.state}`);
}

function view(name, value) {
  const query = new URLSearchParams(wanted);
  if (query.get(name) === String(value)) return true;
  for (const other of ["step", "source", "pixel"]) query.delete(other);
  if (name) query.set(name, value);
  return show(query);
}

// A pixel of the source or of the result is looked at.
function look(cell) {
  const [source, result] = document.querySelector("#scene").dataset.names.split(" ");
  const { name, pixel } = cell.dataset;
  if (name === source) view("source", pixel);
  if (name === result) view("pixel", pixel);
}

function stop() {
  clearTimeout(timer);
  timer = undefined;
  find("play").textContent = "Play";
}

async function play(step) {
  timer = setTimeout(async () => {
    const last = Number(find("step").max);
    if ((await view("step", step)) && timer) step < last ? play(step + 1) : stop();
  }, step ? 700 : 0);
  find("play").textContent = "Stop";
}

// What the controls say; the case before the first change of a parameter stays for comparison.
document.addEventListener("input", ({ target: field }) => {
  if (field.id === "step") {
    stop();
    return view("step", field.value);
  }
  if (field.form !== form) return;
  if (field.name === "kernel" || field.name === "method") {
    const query = new URLSearchParams(new FormData(form));
    if (field.name === "kernel") query.delete("edge_mode"); // which has another default
    return show(query);
  }
  if (field.type === "range") field.nextElementSibling.textContent = field.value;
  const name = field.name.replace(/_(y|x|default)$/, "");
  const unset = form.elements[`${name}_default`];
  if (unset && field !== unset) unset.checked = false;
  const query = new URLSearchParams(new FormData(form));
  for (const kept of ["values", "source", "pixel"]) if (wanted.has(kept)) query.set(kept, wanted.get(kept));
  const old = state();
  const before = turned === name && old.has("before") ? old.get("before") : old.get("case");
  turned = name;
  query.set("before", before);
  show(query);
});

for (const happening of ["mouseover", "focusin"]) {
  document.addEventListener(happening, (event) => {
    const cell = event.target.closest?.("[data-pixel]");
    if (cell && !timer && !editor.isConnected) look(cell);
  });
}

document.addEventListener("keydown", (event) => {
  const cell = event.target.closest?.("[data-pixel]");
  if (!cell) return;
  if (event.key === "Enter") edit(cell);
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!step) return;
  event.preventDefault();
  const [y, x] = cell.dataset.pixel.split(",").map(Number);
  cell.closest("svg").querySelector(`[data-pixel="${y + step[0]},${x + step[1]}"]`)?.focus();
});

// Put a field over a pixel of an input, for another value.
function edit(cell) {
  if (cell.dataset.value === undefined) return;
  stop();
  const box = cell.getBoundingClientRect();
  const { name, pixel, value } = cell.dataset;
  editor.id = "editor";
  editor.ariaLabel = `value of ${name}[${pixel}]`;
  editor.inputMode = "decimal";
  editor.value = value;
  editor.style = `left: ${box.left + scrollX}px; top: ${box.top + scrollY}px; width: ${box.width}px; height: ${box.height}px`;
  editor.onkeydown = ({ key }) => {
    if (key !== "Enter" && key !== "Escape") return;
    finish(key === "Enter");
    find("scene").querySelector(selector(cell))?.focus(); // the cell may have been replaced
  };
  editor.onblur = () => finish(true);
  const finish = (isTaken) => {
    editor.onblur = null;
    editor.remove();
    if (!isTaken || editor.value === value) return;
    const query = new URLSearchParams(wanted);
    const others = (query.get("values") ?? "").split(";").filter((one) => one && !one.startsWith(`${name},${pixel},`));
    query.set("values", [...others, `${name},${pixel},${editor.value.trim()}`].join(";"));
    show(query);
  };
  document.body.append(editor);
  editor.select();
}

document.addEventListener("click", async (event) => {
  const target = event.target;
  const under = document.elementFromPoint(event.clientX, event.clientY); // the target may have been replaced
  const cell = under?.closest("[data-pixel]");
  if (cell) edit(cell);
  if (target.id === "play") timer ? stop() : play(0);
  if (target.dataset?.copy === undefined) return;
  const title = (target.dataset.title ??= target.textContent);
  await navigator.clipboard.writeText(target.dataset.copy);
  target.textContent = "Copied";
  setTimeout(() => (target.textContent = title), 1500);
});

begin();
