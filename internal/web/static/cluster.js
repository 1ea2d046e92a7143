import { account, allNodes, get } from './api.js';
import { timeChart } from './chart.js';
import { facts, h, show, table } from './dom.js';
import { ago, bytes, clock, cores, count, date, percent, plural, span, states, troubled } from './format.js';
import { badge } from './nodes.js';

export const layers = [
  { name: 'online', kind: 'online', key: 'key k-online', of: (v) => v.online },
  { name: 'system', kind: 'system', key: 'key k-system', of: (v) => v.system },
  { name: 'batch', kind: 'batch', key: 'key k-batch', of: (v) => v.batch },
];
const lines = [
  { name: 'waterline', kind: 'mark', key: 'key dash', of: (v) => v.ceiling },
  { name: 'with all that is sold', kind: 'sold', key: 'key stroke', of: (v) => v.online + v.system + v.offer },
];

// pointsOf reads the history: each point has the time that it covers.
export function pointsOf(list, resource) {
  return list.map(([at, seconds, nodes, cpu, memory]) => ({
    at,
    seconds,
    nodes,
    values: nodes ? account(resource === 'cpu' ? cpu : memory) : null,
  }));
}

export const cluster = {
  every: 5000,
  mount(root) {
    let span = 'hour';
    let resource = 'cpu';
    let last = null;
    let list = null;
    const choose = (name, values, now, set) =>
      h(
        'span',
        { class: 'switch', role: 'group', 'aria-label': name },
        values.map(([value, text]) =>
          h(
            'button',
            {
              type: 'button',
              'aria-pressed': String(value === now()),
              'data-key': `${name} ${value}`,
              onclick: () => {
                set(value);
                draw();
              },
            },
            text,
          ),
        ),
      );
    const draw = () =>
      view(root, last, list, span, resource, [
        choose(
          'Resource',
          [
            ['cpu', 'CPU'],
            ['memory', 'Memory'],
          ],
          () => resource,
          (v) => {
            resource = v;
          },
        ),
        choose(
          'Time',
          [
            ['hour', 'hour'],
            ['day', 'day'],
          ],
          () => span,
          (v) => {
            span = v;
          },
        ),
      ]);
    return async () => {
      const data = await get('cluster');
      const nodes = await allNodes();
      if (data === last && !nodes.changed && list) return;
      if (!last && data.day.length > 15) span = 'day';
      last = data;
      list = nodes.list;
      draw();
    };
  },
};

function view(root, data, list, time, resource, switches) {
  const now = account(data.now.cpu);
  const memory = account(data.now.memory);
  if (!list.length) {
    show(
      root,
      h('div', { class: 'head' }, h('h1', null, 'Cluster')),
      h(
        'p',
        { class: 'empty' },
        'No node has reported yet. A node reports when an agent runs on it: see ',
        h('code', null, 'kubectl get nodereports'),
        '.',
      ),
    );
    return;
  }
  const head = h(
    'div',
    { class: 'head' },
    h('h1', null, 'Cluster'),
    h(
      'p',
      null,
      plural(data.now.nodes, 'node reports', 'nodes report'),
      data.now.absent ? `, ${plural(data.now.absent, 'node does', 'nodes do')} not count: silent or withdrawn` : '',
    ),
  );
  const old = list.reduce(
    (m, n) => (n.state === 'silent' || n.state === 'withdrawn' || !n.changed ? m : Math.min(m, n.changed)),
    Infinity,
  );
  const used = now.online + now.system + now.batch;
  const figures = facts([
    ['CPU in use', percent(used, now.capacity), `of ${cores(now.capacity)} cores`],
    ['online', cores(now.online), 'cores', 'k-online'],
    ['batch', cores(now.batch), 'cores', 'k-batch'],
    ['sold to batch', cores(now.offer), 'cores'],
    ['requested by batch', cores(now.bound), 'cores'],
    ['waterline', percent(now.ceiling, now.capacity), 'of the CPU', 'dash'],
  ]);
  const format = resource === 'cpu' ? cores : bytes;
  const points = pointsOf(data[time], resource);
  const length = time === 'hour' ? 3600 : 86400;
  const to = Math.max(Math.ceil(Date.now() / 1000), points.length ? points[points.length - 1].at + 15 : 0);
  const picture = h(
    'section',
    { class: 'card', 'aria-labelledby': 'over' },
    h(
      'div',
      { class: 'top' },
      h('h2', { id: 'over' }, resource === 'cpu' ? 'CPU over time, in cores' : 'Memory over time'),
      h('div', { class: 'choices' }, switches),
    ),
    points.length
      ? timeChart({
          points,
          step: time === 'hour' ? 15 : 300,
          from: to - length,
          to,
          layers,
          lines,
          format,
          clock,
          name: resource === 'cpu' ? 'CPU of the cluster over time' : 'Memory of the cluster over time',
        })
      : h('p', { class: 'empty' }, 'The first figures appear 15 seconds after the manager started.'),
    h(
      'div',
      { class: 'under' },
      h(
        'ul',
        { class: 'legend' },
        [...layers, ...lines].map((l) => h('li', null, h('span', { class: l.key }), l.name)),
      ),
    ),
    h(
      'p',
      { class: 'note' },
      `Sold is the offer, whether batch requests it or not. All are sums over the last report of each node; the oldest that counts is ${old === Infinity ? 'not known' : ago(old).replace(' ago', ' old')}. `,
      `This replica of the manager has recorded since ${date(data.began)}, ${span(data.measuredSeconds)} in all; a restart begins anew.`,
      data.now.batchUnknown
        ? ` ${plural(data.now.batchUnknown, 'node has an agent', 'nodes have agents')} too old to report what batch uses; it counts as 0.`
        : '',
    ),
  );
  const tally = {};
  for (const n of list) tally[n.state] = (tally[n.state] || 0) + 1;
  const shown = Object.keys(states).filter((s) => tally[s]);
  const counts = h(
    'section',
    { class: 'card', 'aria-labelledby': 'states' },
    h('div', { class: 'top' }, h('h2', { id: 'states' }, 'Nodes by state')),
    table(
      'Nodes by state',
      [
        {
          head: 'state',
          left: true,
          cell: (s) => h('a', { href: `#/nodes?state=${s}`, 'data-key': `state ${s}` }, badge(s)),
        },
        { head: 'nodes', cell: (s) => count(tally[s]) },
        { head: 'meaning', left: true, wrap: true, cell: (s) => states[s] },
      ],
      shown,
    ),
  );
  const bad = list.filter((n) => troubled.has(n.state));
  const trouble = h(
    'section',
    { class: 'card', 'aria-labelledby': 'trouble' },
    h('div', { class: 'top' }, h('h2', { id: 'trouble' }, 'Needs a look')),
    bad.length === 0
      ? h('p', { class: 'note' }, 'No node is hot, withdrawn or silent.')
      : table(
          'Nodes that need a look',
          [
            {
              head: 'node',
              left: true,
              cell: (n) =>
                h('a', { href: `#/node/${encodeURIComponent(n.name)}`, 'data-key': `node ${n.name}` }, n.name),
            },
            { head: 'state', left: true, cell: (n) => badge(n.state) },
            { head: 'last report', left: true, cell: (n) => ago(n.changed) },
            {
              head: 'why',
              left: true,
              cell: (n) => n.hot || { withdrawn: 'agent or kubelet lost', silent: 'no recent report' }[n.state] || '',
            },
          ],
          bad.slice(0, 8),
        ),
    bad.length > 8
      ? h(
          'p',
          { class: 'note' },
          `And ${plural(bad.length - 8, 'more node', 'more nodes')}: see `,
          h('a', { href: '#/nodes' }, 'all nodes'),
          '.',
        )
      : null,
  );
  show(
    root,
    head,
    figures,
    picture,
    h('div', { class: 'two' }, counts, trouble),
    h(
      'p',
      { class: 'hidden' },
      `Memory in use: ${bytes(memory.online + memory.system + memory.batch)} of ${bytes(memory.capacity)}.`,
    ),
  );
}
