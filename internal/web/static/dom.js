// Elements are made from data, never from text with markup: what tenants write stays text.

const svgNames = new Set(['svg', 'g', 'path', 'line', 'rect', 'text', 'title', 'desc']);

// h makes an element. Attributes that begin with "on" are listeners; null, undefined and false leave one out.
// Children are elements, texts, or lists of them.
export function h(tag, attributes, ...children) {
  const svg = svgNames.has(tag);
  const e = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) e.addEventListener(name.slice(2), value);
    else e.setAttribute(name, value === true ? '' : value);
  }
  e.append(...flat(children));
  return e;
}

function flat(children) {
  return children.flat(9).filter((c) => c !== null && c !== undefined && c !== false);
}

// show replaces what is in an element. The focus, the place of scrolling, and which details are open stay, by the
// attribute data-key.
export function show(root, ...children) {
  const focused = root.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const open = new Set([...root.querySelectorAll('details[open][data-key]')].map((d) => d.dataset.key));
  const scrolled = new Map([...root.querySelectorAll('.scroll[data-key]')].map((d) => [d.dataset.key, d.scrollLeft]));
  root.replaceChildren(...flat(children));
  for (const d of root.querySelectorAll('details[data-key]')) if (open.has(d.dataset.key)) d.open = true;
  for (const d of root.querySelectorAll('.scroll[data-key]')) d.scrollLeft = scrolled.get(d.dataset.key) || 0;
  if (focused)
    [...root.querySelectorAll('[data-key]')].find((e) => e.dataset.key === focused)?.focus({ preventScroll: true });
}

// say tells readers of the screen what happened.
export function say(text) {
  document.getElementById('say').textContent = text;
}

// table makes a table. Columns have a head, a cell for each row, and left: true for text.
export function table(name, columns, rows) {
  return h(
    'div',
    { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': name, 'data-key': 'table ' + name },
    h(
      'table',
      null,
      h(
        'thead',
        null,
        h(
          'tr',
          null,
          columns.map((c) => h('th', { scope: 'col', class: c.left ? 'l' : null, 'aria-sort': c.sort }, c.head)),
        ),
      ),
      h(
        'tbody',
        null,
        rows.map((r) =>
          h(
            'tr',
            null,
            columns.map((c) =>
              h('td', { class: [c.left ? 'l' : '', c.wrap ? 'wrap' : ''].join(' ').trim() || null }, c.cell(r)),
            ),
          ),
        ),
      ),
    ),
  );
}

// bar makes a bar of parts; each has a value and a class. The mark, if any, is at a value too.
export function bar(total, parts, mark, thin) {
  const percent = (v) => Math.max(0, Math.min(100, total > 0 ? (100 * v) / total : 0)) + '%';
  const line = mark === undefined ? null : h('span', { class: 'at' });
  if (line) line.style.left = percent(mark);
  return h(
    'div',
    { class: thin ? 'bar thin' : 'bar', 'aria-hidden': 'true' },
    parts.map(([value, kind]) => {
      const i = h('i', { class: kind });
      i.style.width = percent(value);
      return i;
    }),
    line,
  );
}

// facts makes a list of figures: name, value, unit, and the class of a key.
export function facts(list) {
  return h(
    'dl',
    { class: 'facts' },
    list
      .filter(Boolean)
      .map(([name, value, unit, key]) =>
        h(
          'div',
          null,
          h('dt', null, key ? h('span', { class: 'key ' + key }) : null, name),
          h('dd', null, value, unit ? h('small', null, unit) : null),
        ),
      ),
  );
}

// rows makes a list of names and values. Those without a value are left out.
export function rows(list) {
  return h(
    'dl',
    { class: 'rows' },
    list
      .filter(([, value]) => value !== null && value !== undefined && value !== '')
      .map(([name, value]) => [h('dt', null, name), h('dd', null, value)]),
  );
}

// conditionList shows conditions. bad says which of them are a trouble.
export function conditionList(list, bad) {
  return list.length === 0
    ? null
    : rows(
        list.map((c) => [
          h('span', { class: 'badge ' + (bad(c) ? 's-bad' : 's-good') }, c.type + ': ' + c.status),
          [c.reason, c.message ? ' – ' + c.message : ''],
        ]),
      );
}
