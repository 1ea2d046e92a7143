import { get } from './api.js';
import { conditionList, facts, h, show, table } from './dom.js';
import { ago, bytes, count, date, plural } from './format.js';

export const pools = {
  every: 5000,
  mount(root) {
    let last = null;
    return async () => {
      const data = await get('pools');
      if (data !== last) view(root, data);
      last = data;
    };
  },
};

const quantity = (text) => {
  const found = /^([0-9.]+)([KMGTP]i?)?$/.exec(text || '0');
  if (!found) return 0;
  const [, number, unit = ''] = found;
  const step = unit.endsWith('i') ? 1024 : 1000;
  return (Number(number) * step ** ' KMGTP'.indexOf(unit[0] || ' ')) / 1048576;
};

function view(root, data) {
  show(
    root,
    h(
      'div',
      { class: 'head' },
      h('h1', null, 'Worker pools'),
      h('p', null, data.pools.length ? plural(data.pools.length, 'pool', 'pools') : ''),
    ),
    data.hidden
      ? h(
          'p',
          { class: 'notice' },
          `You may not list worker pools in ${plural(data.hidden, 'namespace', 'namespaces')} that can have some.`,
        )
      : null,
    data.pools.length
      ? data.pools.map(pool)
      : data.hidden && data.hidden === data.namespaces
        ? null
        : h(
            'p',
            { class: 'empty' },
            data.namespaces
              ? 'There is no worker pool. A WorkerPool runs workers of YARN, Trino or Impala on what online pods leave.'
              : 'No namespace may have worker pools: the chart’s value manager.pools.namespaces is empty.',
          ),
  );
}

function pool(p) {
  const s = p.status;
  const id = `${p.namespace}/${p.name}`;
  const total = s.total || {};
  const used = s.used || {};
  const workers = s.workers || [];
  return h(
    'section',
    { class: 'card', 'aria-label': `Pool ${id}` },
    h(
      'div',
      { class: 'top' },
      h('h2', null, id),
      h('p', { class: 'note' }, p.engine, s.next ? `, changes next ${date(Date.parse(s.next) / 1000)}` : ''),
    ),
    facts([
      ['workers wanted', count(s.wanted)],
      ['active', count(s.active)],
      ['leaving', count(s.leaving)],
      ['containers', count(s.containers)],
      ['vcores used', count(used.vcores || 0), `of ${count(total.vcores || 0)}`],
      ['memory used', bytes(quantity(used.memory)), `of ${bytes(quantity(total.memory))}`],
    ]),
    conditionList(p.conditions, (c) => (c.type === 'Ready') !== (c.status === 'True')),
    h('h3', null, s.reports ? 'Workers that need attention' : 'Workers'),
    workers.length === 0
      ? h('p', { class: 'note' }, s.reports ? 'None of the workers needs attention.' : 'No worker has run yet.')
      : table(
          `Workers of ${id}`,
          [
            { head: 'worker', left: true, cell: (w) => w.name },
            {
              head: 'node',
              left: true,
              cell: (w) =>
                w.node
                  ? h('a', { href: `#/node/${encodeURIComponent(w.node)}`, 'data-key': `${id} ${w.name}` }, w.node)
                  : '–',
            },
            {
              head: 'phase',
              left: true,
              cell: (w) =>
                h('span', { class: `badge ${{ Active: 's-good', Draining: 's-draining' }[w.phase] || ''}` }, w.phase),
            },
            {
              head: 'reason',
              left: true,
              wrap: true,
              cell: (w) => [w.reason || '', w.message ? ` – ${w.message}` : ''],
            },
            { head: 'since', cell: (w) => ago(Date.parse(w.since) / 1000) },
            { head: 'until', cell: (w) => (w.until ? date(Date.parse(w.until) / 1000) : '–') },
            { head: 'vcores', cell: (w) => count(w.total?.vcores || 0) },
            { head: 'memory', cell: (w) => bytes(quantity(w.total?.memory)) },
            { head: 'containers', cell: (w) => count(w.containers || 0) },
          ],
          workers,
        ),
  );
}
