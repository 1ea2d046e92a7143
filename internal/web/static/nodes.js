import { allNodes } from './api.js';
import { h, show, table } from './dom.js';
import { ago, cores, count, percent, states } from './format.js';
import { heatMap } from './heat.js';

export const badge = (state) => h('span', { class: `badge s-${state}` }, state);

const used = (n) => n.cpu && n.cpu.online + n.cpu.system + (n.cpu.batch || 0);
const share = (v, n) => (n.cpu && n.cpu.capacity > 0 && v !== null ? v / n.cpu.capacity : null);

// What a cell's colour can show: a value from 0 to 1 (null: not known), and its text.
const colours = {
  use: { name: 'CPU in use', of: (n) => share(used(n), n), high: 1 },
  batch: { name: 'CPU used by batch', of: (n) => share(n.cpu?.batch ?? null, n), high: 1 },
  offer: { name: 'CPU sold to batch', of: (n) => share(n.cpu?.offer ?? null, n), high: 1 },
  pressure: { name: 'CPU pressure', of: (n) => (n.pressure ? n.pressure[0] / 1000 : null), high: 0.5 },
  state: { name: 'state', of: () => null },
};

const sorts = {
  name: (n) => n.name,
  state: (n) => Object.keys(states).indexOf(n.state),
  use: (n) => -(share(used(n), n) ?? -1),
  batch: (n) => -(n.cpu?.batch ?? -1),
  offer: (n) => -(n.cpu?.offer ?? -1),
  pressure: (n) => -(n.pressure ? n.pressure[0] : -1),
  changed: (n) => n.changed,
};

export const nodes = {
  every: 5000,
  mount(root, { query }) {
    const set = {
      find: query.get('find') || '',
      policy: query.get('policy') ?? '*',
      state: query.get('state') || '',
      colour: query.get('colour') || 'use',
      sort: query.get('sort') || 'name',
    };
    if (!colours[set.colour]) set.colour = 'use';
    if (!sorts[set.sort]) set.sort = 'name';
    let all = [];
    let rows = 50;
    let due = 0;
    const choice = (name, key, options) => {
      const select = h('select', {
        'data-key': key,
        onchange: () => {
          set[key] = select.value;
          rows = 50;
          apply();
        },
      });
      return { select, fill: (list) => fill(select, list, set[key]), label: h('label', null, name, select) };
    };
    const find = h('input', {
      type: 'search',
      placeholder: 'part of a name',
      value: set.find,
      autocomplete: 'off',
      spellcheck: 'false',
      oninput: () => {
        set.find = find.value;
        rows = 50;
        apply();
      },
    });
    const policy = choice('Policy', 'policy');
    const state = choice('State', 'state');
    const colour = choice('Colour', 'colour');
    const sort = choice('Order', 'sort');
    colour.fill(Object.entries(colours).map(([k, c]) => [k, c.name]));
    sort.fill([
      ['name', 'name'],
      ['state', 'state'],
      ['use', 'CPU in use'],
      ['batch', 'used by batch'],
      ['offer', 'sold'],
      ['pressure', 'pressure'],
      ['changed', 'oldest report'],
    ]);
    const number = h('p', { role: 'status' });
    const map = heatMap((n) => {
      location.hash = `#/node/${encodeURIComponent(n.name)}`;
    });
    const list = h('div');
    const empty = h('p', { class: 'empty', hidden: true });
    const card = h('section', { class: 'card', 'aria-label': 'Heat map' }, map.element, empty);
    root.replaceChildren(
      h('div', { class: 'head' }, h('h1', null, 'Nodes'), number),
      h(
        'div',
        { class: 'tools', role: 'search' },
        h('label', null, 'Name', find),
        policy.label,
        state.label,
        colour.label,
        sort.label,
      ),
      card,
      h('section', { class: 'card', 'aria-label': 'List of nodes' }, list),
    );

    const apply = () => {
      const text = set.find.trim().toLowerCase();
      const key = sorts[set.sort];
      const found = all.filter(
        (n) =>
          (!text || n.name.toLowerCase().includes(text)) &&
          (set.policy === '*' || n.policy === set.policy) &&
          (!set.state || n.state === set.state),
      );
      if (set.sort !== 'name') found.sort((a, b) => key(a) - key(b));
      number.textContent =
        found.length === all.length ? `${count(all.length)}` : `${count(found.length)} of ${count(all.length)}`;
      const address = new URLSearchParams(
        Object.entries(set).filter(
          ([k, v]) => v !== { find: '', policy: '*', state: '', colour: 'use', sort: 'name' }[k],
        ),
      ).toString();
      history.replaceState(null, '', `#/nodes${address ? `?${address}` : ''}`);
      empty.hidden = found.length > 0;
      map.element.hidden = found.length === 0;
      empty.textContent = all.length
        ? 'No node matches. Clear the name, or choose another policy or state.'
        : 'No node has reported yet. A node reports when an agent runs on it.';
      map.show(found, colours[set.colour], set.colour === 'state');
      clearTimeout(due); // the list follows when nobody types any more
      due = setTimeout(() => listed(found), 60);
    };
    const listed = (found) => {
      show(
        list,
        found.length === 0
          ? null
          : [
              table(
                'List of nodes',
                [
                  {
                    head: 'node',
                    left: true,
                    cell: (n) =>
                      h('a', { href: `#/node/${encodeURIComponent(n.name)}`, 'data-key': `node ${n.name}` }, n.name),
                  },
                  { head: 'state', left: true, cell: (n) => badge(n.state) },
                  { head: 'policy', left: true, cell: (n) => n.policy || 'none' },
                  { head: 'CPU', cell: (n) => (n.cpu ? cores(n.cpu.capacity) : 'not known') },
                  { head: 'in use', cell: (n) => percent(used(n), n.cpu?.capacity) },
                  { head: 'online', cell: (n) => cores(n.cpu?.online) },
                  { head: 'batch', cell: (n) => cores(n.cpu?.batch) },
                  { head: 'sold', cell: (n) => cores(n.cpu?.offer) },
                  { head: 'requested', cell: (n) => cores(n.cpu?.bound) },
                  { head: 'pressure', cell: (n) => (n.pressure ? `${(n.pressure[0] / 10).toFixed(1)} %` : '–') },
                  { head: 'report', cell: (n) => ago(n.changed) },
                ],
                found.slice(0, rows),
              ),
              found.length > rows
                ? h(
                    'p',
                    { class: 'note' },
                    h(
                      'button',
                      {
                        type: 'button',
                        'data-key': 'more',
                        onclick: () => {
                          rows += 200;
                          apply();
                        },
                      },
                      `Show more of ${count(found.length)}`,
                    ),
                  )
                : null,
            ],
      );
    };
    let loaded = false;
    return async () => {
      const { list: now, changed } = await allNodes();
      if (loaded && !changed) return;
      loaded = true;
      all = now;
      policy.fill([
        ['*', 'all policies'],
        ...[...new Set(all.map((n) => n.policy))].sort().map((p) => [p, p || 'no policy']),
      ]);
      const present = new Set(all.map((n) => n.state));
      state.fill([
        ['', 'all states'],
        ...Object.keys(states)
          .filter((s) => present.has(s) || s === set.state)
          .map((s) => [s, s]),
      ]);
      apply();
    };
  },
};

// fill sets the options of a select, unless they are the same.
function fill(select, list, chosen) {
  const text = JSON.stringify(list);
  if (select.dataset.list === text) return;
  select.dataset.list = text;
  if (!list.some(([v]) => v === chosen)) list.push([chosen, chosen]);
  select.replaceChildren(...list.map(([value, name]) => h('option', { value, selected: value === chosen }, name)));
}
