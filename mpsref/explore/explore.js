// The page of the explorer. Geometry and sums come from the server; this script marks the pixels that it names.
const controls = document.getElementById("controls");
const problem = document.getElementById("problem");
let data, source, result, order, chosen, traced, timer, request;

function begin() {
  clearInterval(timer);
  data = JSON.parse(document.getElementById("data").textContent);
  source = cells("source");
  result = cells("result");
  order = Object.keys(data.pixels);
  if (!source[traced]) traced = Object.keys(source)[0];
  chosen ??= new URLSearchParams(location.search).get("pixel");
  choose(order.includes(chosen) ? chosen : order[0]);
}

function cells(name) {
  const found = {};
  for (const cell of document.querySelectorAll(`.grid.${name} td`)) {
    cell.dataset.text = cell.textContent;
    found[cell.dataset.pixel] = cell;
  }
  return found;
}

function clear() {
  for (const cell of [...Object.values(source), ...Object.values(result)]) {
    cell.classList.remove("tap", "center", "hollow", "weighted", "chosen");
    cell.textContent = cell.dataset.text;
    cell.tabIndex = -1;
  }
  source[traced].tabIndex = 0;
  result[chosen].tabIndex = 0;
}

// Mark a pixel of the result and the pixels of its window or sum.
function choose(pixel) {
  chosen = pixel;
  clear();
  result[pixel].classList.add("chosen");
  for (const [place, weight, kind] of data.pixels[pixel].terms) {
    const cell = source[place];
    if (!cell) continue;
    cell.classList.add(kind);
    if (kind === "center") cell.classList.add("tap");
    if (weight === "0") continue;
    weigh(cell, weight);
  }
  const address = new URLSearchParams(location.search);
  address.set("pixel", pixel);
  history.replaceState(null, "", `/?${address}`);
  document.getElementById("sum").textContent = data.pixels[pixel].text;
  document.getElementById("order").value = order.indexOf(pixel);
}

function weigh(cell, weight) {
  cell.classList.add("weighted");
  const label = document.createElement("small");
  label.textContent = `× ${weight}`;
  cell.append(label);
}

// Mark a pixel of the source and the pixels of the result to which it contributes.
function trace(place) {
  traced = place;
  clear();
  source[place].classList.add("chosen");
  const reached = [];
  for (const [pixel, { terms }] of Object.entries(data.pixels)) {
    for (const [other, weight] of terms) {
      if (other !== place || weight === "0") continue;
      weigh(result[pixel], weight);
      reached.push(`${data.result}[${pixel}]`);
    }
  }
  const name = `${data.source}[${place}]`;
  const text = reached.length ? `contributes to ${reached.join(", ")}` : `contributes to no pixel of ${data.result}`;
  document.getElementById("sum").textContent = `${name} ${text}.`.replaceAll(",", ", ").replaceAll(",  ", ", ");
}

async function refresh() {
  request?.abort();
  request = new AbortController();
  const query = new URLSearchParams(new FormData(controls));
  try {
    const answer = await fetch(`/scene?${query}`, { signal: request.signal });
    const { problem: sentence, address, html } = await answer.json();
    problem.textContent = sentence;
    if (sentence) return;
    document.getElementById("scene").outerHTML = html;
    history.replaceState(null, "", address);
    begin();
  } catch (error) {
    if (error.name !== "AbortError") problem.textContent = "The server does not answer: start mpsref explore again.";
  }
}

function play(button) {
  clearInterval(timer);
  if (button.textContent === "Stop") {
    button.textContent = "Play";
    return;
  }
  button.textContent = "Stop";
  timer = setInterval(() => choose(order[(order.indexOf(chosen) + 1) % order.length]), 600);
}

controls.addEventListener("input", (event) => {
  const { name, value, type } = event.target;
  if (name === "kernel" || name === "method") {
    const edge = controls.elements.edge_mode;
    if (name === "kernel" && edge) edge.disabled = true; // its default: kernels have different edge modes
    return controls.submit(); // there are other fields
  }
  if (type === "range") event.target.previousElementSibling.textContent = value;
  refresh();
});

document.addEventListener("input", (event) => {
  if (event.target.id === "order") choose(order[event.target.value]);
});

for (const happening of ["mouseover", "click", "focusin"]) {
  document.addEventListener(happening, (event) => {
    const cell = event.target.closest?.(".grid td");
    const grid = cell?.closest(".grid").classList;
    if (grid?.contains("source")) trace(cell.dataset.pixel);
    if (grid?.contains("result") && !cell.classList.contains("chosen")) choose(cell.dataset.pixel);
  });
}

document.addEventListener("keydown", (event) => {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!step || !event.target.matches?.(".grid.result td, .grid.source td")) return;
  event.preventDefault();
  const [y, x] = event.target.dataset.pixel.split(",").map(Number);
  const grid = event.target.closest(".grid.result") ? result : source;
  grid[`${y + step[0]},${x + step[1]}`]?.focus();
});

document.addEventListener("click", async (event) => {
  const button = event.target;
  if (button.id === "play") play(button);
  if (button.dataset?.copy === undefined) return;
  const title = (button.dataset.title ??= button.textContent);
  await navigator.clipboard.writeText(button.dataset.copy);
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = title), 1500);
});

begin();
