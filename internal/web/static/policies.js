import { get } from './api.js';
import { bar, conditionList, h, rows, show } from './dom.js';
import { count, plural } from './format.js';

export const policies = {
  every: 10000,
  mount(root) {
    let last = null;
    return async () => {
      const data = await get('policies');
      if (data !== last) view(root, data.policies);
      last = data;
    };
  },
};

function view(root, list) {
  const order = [...list].sort((a, b) => (b.spec.priority || 0) - (a.spec.priority || 0) || (a.name < b.name ? -1 : 1));
  show(
    root,
    h(
      'div',
      { class: 'head' },
      h('h1', null, 'Policies'),
      h(
        'p',
        null,
        list.length
          ? `${plural(list.length, 'policy', 'policies')}; where several select a node, the first governs it`
          : '',
      ),
    ),
    list.length
      ? order.map(policy)
      : h(
          'p',
          { class: 'empty' },
          'There is no policy. Every agent then observes: it decides and reports, and writes nothing.',
        ),
  );
}

function policy(p) {
  const s = p.spec;
  const n = p.nodes;
  const windows = (s.windows || []).map(
    (w) => `${w.start}–${w.end} ${w.timeZone}${w.drainBefore ? `, drains ${w.drainBefore} before` : ''}`,
  );
  const sale = (r, waterline) =>
    r ? `up to ${r.waterline || waterline}, ${r.method || 'Predicted'}${r.ratio ? ` ${r.ratio}` : ''}` : 'not sold';
  const selector = s.nodeSelector
    ? Object.entries(s.nodeSelector.matchLabels || {})
        .map(([k, v]) => `${k}=${v}`)
        .concat(
          (s.nodeSelector.matchExpressions || []).map((e) => `${e.key} ${e.operator} ${(e.values || []).join(' ')}`),
        )
        .join(', ')
    : '';
  const step = (name, v, note) =>
    h(
      'div',
      { class: 'meter' },
      h('span', null, name),
      bar(n.selected, [[v, 'k-online']]),
      h('span', { title: note }, count(v)),
    );
  return h(
    'section',
    { class: 'card', 'aria-label': `Policy ${p.name}` },
    h(
      'div',
      { class: 'top' },
      h('h2', null, p.name),
      p.paused
        ? h('span', { class: 'badge s-disabled', title: `mode ${s.mode || 'Observe'}` }, 'paused')
        : h('span', { class: `badge ${s.mode === 'Enforce' ? 's-selling' : 's-observing'}` }, s.mode || 'Observe'),
      h(
        'p',
        { class: 'note' },
        `priority ${s.priority || 0}`,
        p.observed < p.generation ? '; the manager has not read its newest version yet' : '',
      ),
    ),
    h(
      'div',
      { class: 'two' },
      h(
        'div',
        null,
        h('h3', null, 'Nodes'),
        step('selected', n.selected),
        step('governed', n.governed),
        step('enforcing', n.enforcing),
        step('offering', n.offering),
        h(
          'p',
          { class: 'note' },
          h(
            'a',
            { href: `#/nodes?policy=${encodeURIComponent(p.name)}`, 'data-key': `nodes ${p.name}` },
            'The nodes that report this policy',
          ),
          p.slippedPods
            ? `. ${plural(p.slippedPods, 'batch pod', 'batch pods')} on them did not pass the webhook: delete and create them anew.`
            : '',
        ),
      ),
      h(
        'div',
        null,
        h('h3', null, 'What it says'),
        rows([
          ['nodes', selector || 'all'],
          ['rollout', s.rollout ? s.rollout.nodes : ''],
          ['windows', windows.length ? windows.map((w) => h('div', null, w)) : 'always'],
          ['CPU', sale(s.cpu, '65%')],
          ['suppression', s.cpu ? s.cpu.suppression || 'OnHarm' : ''],
          ['memory', sale(s.memory, '80%')],
        ]),
      ),
    ),
    p.conditions.length ? h('h3', null, 'Conditions') : null,
    conditionList(p.conditions, (c) => (c.type === 'Ready' ? c.status !== 'True' : c.status === 'True')),
    h(
      'details',
      { 'data-key': `text ${p.name}` },
      h('summary', null, 'The whole policy'),
      h('pre', { tabindex: '0' }, p.text),
    ),
  );
}
