import { get } from './api.js';
import { timeChart } from './chart.js';
import { pointsOf } from './cluster.js';
import { facts, h, rows, show } from './dom.js';
import { clock, count, date, span } from './format.js';

const hours = (milliSeconds) => milliSeconds / 1000 / 3600;
const text = (v) => (v >= 100 ? count(v) : v.toFixed(1));

export const gain = {
  every: 15000,
  mount(root) {
    const price = h('input', {
      id: 'price',
      type: 'number',
      min: '0',
      step: 'any',
      inputmode: 'decimal',
      value: sessionStorage.getItem('waterline-price') || '',
      placeholder: '0.02',
      'data-key': 'price',
    });
    let last = null;
    price.addEventListener('input', () => {
      sessionStorage.setItem('waterline-price', price.value);
      if (last) view(root, last, price);
    });
    return async () => {
      const data = await get('cluster');
      if (data !== last) view(root, data, price);
      last = data;
    };
  },
};

function view(root, data, price) {
  const points = pointsOf(data.day, 'cpu');
  const midnight = new Date().setHours(0, 0, 0, 0) / 1000;
  const sum = (list, f) => list.reduce((s, p) => s + (p.values ? hours(f(p.values) * p.seconds) : 0), 0);
  const today = points.filter((p) => p.at >= midnight);
  const begins = today.length ? today[0].at : 0;
  const used = sum(today, (v) => v.batch);
  const each = Number(price.value);
  const money = (v) => (each > 0 ? ` ≈ ${text(v * each)}` : '');
  const covered = today.reduce((s, p) => s + p.seconds, 0);
  const whole = begins && begins - midnight < 600;
  const now = Math.ceil(Date.now() / 1000);
  show(
    root,
    h('div', { class: 'head' }, h('h1', null, 'Gain'), h('p', null, 'cores given to batch, in core-hours')),
    facts([
      [
        whole ? 'used by batch today' : begins ? `used since ${clock(begins)}` : 'used by batch today',
        text(used),
        `core-hours${money(used)}`,
        'k-batch',
      ],
      ['requested today', text(sum(today, (v) => v.bound)), 'core-hours'],
      ['used since the start', text(data.batchCoreHours), `core-hours${money(data.batchCoreHours)}`, 'k-batch'],
      ['requested since the start', text(data.soldCoreHours), 'core-hours'],
      ['cores today, mean', text(covered ? used / (covered / 3600) : 0), 'cores'],
    ]),
    h(
      'section',
      { class: 'card', 'aria-labelledby': 'given' },
      h('div', { class: 'top' }, h('h2', { id: 'given' }, 'Cores used by batch, the last 24 hours')),
      points.length
        ? timeChart({
            points,
            step: 300,
            from: now - 86400,
            to: now,
            layers: [{ name: 'used by batch', kind: 'batch', key: 'key k-batch', of: (v) => v.batch }],
            lines: [{ name: 'requested by batch', kind: 'sold', key: 'key stroke', of: (v) => v.bound }],
            format: (v) => count(v / 1000),
            clock,
            name: 'Cores used by batch over the last day',
          })
        : h('p', { class: 'empty' }, 'The first figures appear 15 seconds after the manager started.'),
      h(
        'div',
        { class: 'under' },
        h(
          'ul',
          { class: 'legend' },
          [
            ['key k-batch', 'used by batch'],
            ['key stroke', 'requested by batch'],
          ].map(([key, t]) => h('li', null, h('span', { class: key }), t)),
        ),
      ),
    ),
    h(
      'section',
      { class: 'card prose', 'aria-labelledby': 'honest' },
      h('div', { class: 'top' }, h('h2', { id: 'honest' }, 'What these figures are')),
      rows([
        [
          'start',
          `${date(data.began)}: this replica of the manager. A restart begins anew, and each replica has its own record.`,
        ],
        [
          'measured',
          `${span(data.measuredSeconds)} since then, every 15 s. Time before it, and while the manager was away, is not counted.`,
        ],
        [
          'used',
          `CPU that batch pods used, by the last report of each node. A report can be some minutes old.${data.now.batchUnknown ? ` ${data.now.batchUnknown} nodes do not report it and count as 0.` : ''}`,
        ],
        ['requested', 'Batch resources that the pods on the nodes request, whether they use them or not.'],
        [
          'not counted',
          'Nodes that are silent or withdrawn. What these cores would have cost elsewhere is for you to say:',
        ],
        [h('label', { for: 'price' }, 'price of a core-hour'), price],
      ]),
    ),
  );
}
