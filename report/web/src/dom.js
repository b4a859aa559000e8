// Elements of the page.

/** An element with attributes and children; null children are left out. */
export function el(tag, attributes, ...children) {
  const e = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith('on')) e.addEventListener(name.slice(2), value)
    else if (value !== null && value !== undefined && value !== false) e.setAttribute(name, value === true ? '' : value)
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined))
  return e
}

/** A section with a heading, on the page. */
export function section(id, title, ...children) {
  return el('section', { id, 'aria-labelledby': id + '-title' }, el('h2', { id: id + '-title' }, title), ...children)
}

/** A table that scrolls sideways where it does not fit. Rows are arrays of cells: text, elements, or {class, text}. */
export function table(caption, header, rows) {
  const cell = (tag, c, attributes) =>
    c !== null && typeof c === 'object' && !(c instanceof Node)
      ? el(tag, { ...attributes, class: c.class, title: c.title }, c.text)
      : el(tag, attributes, c ?? '')
  return el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
    el('table', {},
      el('caption', { class: 'hidden' }, caption),
      el('thead', {}, el('tr', {}, header.map((c) => cell('th', c, { scope: 'col' })))),
      el('tbody', {}, rows.map((r) => el('tr', {}, r.map((c, i) => (i ? cell('td', c) : cell('th', c, { scope: 'row' }))))))))
}

/** What plots show, as a table that opens. */
export const asTable = (caption, header, rows) =>
  el('details', {}, el('summary', {}, `${caption}, as a table`), table(caption, header, rows))

/** A choice of one of several, as buttons; the first is chosen. */
export function choice(label, names, choose) {
  if (names.length < 2) return null
  const name = 'choice-' + label.replace(/\W+/g, '-')
  return el('fieldset', { class: 'choice' }, el('legend', { class: 'hidden' }, label),
    names.map((n, i) =>
      el('label', {}, el('input', { type: 'radio', name, value: i, checked: i === 0, onchange: () => choose(i) }), el('span', {}, n))))
}

/** A square in the colour of the i-th run. */
export const chip = (i) => el('i', { class: 'chip', style: `background: var(--c${i % 8})` })

/** The runs' names with their colours. */
export const legend = (names, colour = (i) => i) =>
  el('ul', { class: 'legend' }, names.map((n, i) => el('li', {}, chip(colour(i)), n)))
