// Elements, without ever parsing text as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element with attributes, listeners (`onclick`) and children. */
export const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);

/** An SVG element. */
export const s = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

/** Replace what an element holds. */
export function put(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Set an element's text only when it changes, so that screen readers hear only news. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

let made = 0;

/** A labelled field: `field("Amount", input, "a note")`. */
export function field(label, input, note) {
  input.id ||= `field-${++made}`;
  const noted = note && h("p", { class: "note", id: `${input.id}-note` }, note);
  if (noted) input.setAttribute("aria-describedby", noted.id);
  return h("div", { class: "field" }, h("label", { for: input.id }, label), input, noted);
}

export const card = (title, ...children) => h("div", { class: "card" }, h("h2", {}, title), children);

/** What to show where there is nothing yet: why, and what to do. */
export const empty = (title, ...children) => h("div", { class: "card empty" }, h("h2", {}, title), children);

export const tiles = (pairs) =>
  h("dl", { class: "tiles" }, pairs.map(([name, value]) => h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, value))));

export const facts = (pairs) =>
  h("dl", { class: "facts" }, pairs.filter((pair) => pair[1] !== undefined).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

/** A table. `columns` are names, or `{name, number}`. */
export function table(caption, columns, rows) {
  const kinds = columns.map((column) => (column.number ? { class: "number" } : {}));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, columns.map((column, i) => h("th", { scope: "col", ...kinds[i] }, column.name ?? column)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) => h("td", kinds[i], cell)))))));
}
