// Elements made of data. All text goes through text nodes: nothing from the server is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** Return an HTML element. `attributes.on` maps events to handlers; children are nodes or texts. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Return an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Return a table. Columns are texts, or {text, number: true}; cells are nodes or texts. */
export function table(caption, columns, rows, empty) {
  if (!rows.length) return el("p", { class: "quiet" }, empty);
  const isNumber = columns.map((column) => typeof column === "object" && column.number === true);
  const heads = columns.map((column, at) =>
    el("th", { scope: "col", class: isNumber[at] ? "number" : null }, typeof column === "object" ? column.text : column),
  );
  const body = rows.map(({ cells, tone, key }) =>
    el("tr", { "data-tone": tone, "data-key": key }, cells.map((cell, at) => el("td", { class: isNumber[at] ? "number" : null }, cell))),
  );
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption, "data-key": `scroll ${caption}` },
    el("table", {}, el("caption", { class: "hidden" }, caption), el("thead", {}, el("tr", {}, heads)), el("tbody", {}, body)),
  );
}

const shown = new WeakMap();

/**
 * Show data in a place, if it has changed since: the place's children are replaced by what `render` returns.
 * Focus, scroll positions and open details stay, by their attribute data-key.
 */
export function update(place, data, render) {
  const key = JSON.stringify(data);
  if (shown.get(place) === key) return;
  shown.set(place, key);
  const keyed = (element) => element.getAttribute("data-key");
  const before = [...place.querySelectorAll("[data-key]")];
  const scrolled = new Map(before.map((element) => [keyed(element), [element.scrollLeft, element.scrollTop]]));
  const open = new Map(before.filter((element) => element instanceof HTMLDetailsElement).map((element) => [keyed(element), element.open]));
  const focused = place.contains(document.activeElement) ? keyed(document.activeElement) : null;
  place.replaceChildren(...[render(data)].flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  for (const element of place.querySelectorAll("[data-key]")) {
    if (open.has(keyed(element))) element.open = open.get(keyed(element));
    const [left, top] = scrolled.get(keyed(element)) ?? [0, 0];
    if (left || top) element.scrollTo(left, top);
    if (focused !== null && keyed(element) === focused) element.focus({ preventScroll: true });
  }
}

/** Forget what a place shows, so that the next `update` draws it again. */
export function forget(place) {
  shown.delete(place);
}
