import { get } from './api.js';
import { bar, conditionList, h, rows, show, table } from './dom.js';
import { ago, bytes, cores, percent, withCores } from './format.js';
import { badge } from './nodes.js';

const harms = {
  RunQueueDelay: 'by how long tasks of online pods wait for a CPU, every 100 ms',
  Pressure: 'by the CPU pressure of online pods, each second',
  ServiceFigure: 'by the services’ own figures',
};

export const node = {
  every: 5000,
  mount(root, { name }) {
    let last = null;
    return async () => {
      const data = await get(`nodes/${encodeURIComponent(name)}`);
      if (data !== last) view(root, data);
      last = data;
    };
  },
};

function view(root, n) {
  const why = (code) => {
    const r = n.reasons[code];
    return r
      ? [h('b', null, code), ` – ${r.means}.`, r.fix ? ` ${r.fix[0].toUpperCase()}${r.fix.slice(1)}.` : '']
      : code;
  };
  const { of: owners, lit } = cpuOwners(n.pods);
  show(
    root,
    h('div', { class: 'head' }, h('h1', null, n.name), badge(n.state), h('p', null, `last report ${ago(n.changed)}`)),
    n.hot ? h('p', { class: 'notice' }, 'Nothing is sold: ', why(n.hot)) : null,
    n.eviction
      ? h(
          'p',
          { class: 'notice' },
          `The node requests the eviction of ${n.eviction.namespace}/${n.eviction.name}: `,
          why(n.eviction.reason),
          ` ${n.eviction.message}`,
        )
      : null,
    h(
      'div',
      { class: 'two' },
      resource('CPU', n.cpu, withCores, cores, why),
      resource('Memory', n.memory, bytes, bytes, why),
    ),
    h(
      'div',
      { class: 'two' },
      h(
        'section',
        { class: 'card', 'aria-labelledby': 'policy' },
        h('div', { class: 'top' }, h('h2', { id: 'policy' }, 'Policy and conditions')),
        rows([
          [
            'policy',
            n.policy
              ? h('a', { href: '#/policies', 'data-key': 'policy' }, n.policy)
              : 'none: the agent observes with the defaults',
          ],
          ['version of it', n.policy ? `generation ${n.generation}` : ''],
          ['mode', n.mode || 'not known'],
          ['window', n.selling],
          ['not supported here', n.unsupported?.length ? n.unsupported.map((c) => h('div', null, why(c))) : ''],
          ['files to restore', n.unrestored || ''],
        ]),
        n.conditions.length ? h('h3', null, 'Conditions') : null,
        conditionList(n.conditions, (c) => c.type === 'Withdrawn' && c.status === 'True'),
      ),
      h(
        'section',
        { class: 'card', 'aria-labelledby': 'pressure' },
        h('div', { class: 'top' }, h('h2', { id: 'pressure' }, 'Pressure and harm')),
        n.pressure
          ? [
              ['CPU', n.pressure.cpu],
              ['memory', n.pressure.memory],
              ['I/O', n.pressure.io],
            ].map(([what, v]) =>
              h(
                'div',
                { class: 'meter' },
                h('span', null, what),
                bar(1000, [[v, 'k-online']]),
                h('span', null, `${(v / 10).toFixed(1)} %`),
              ),
            )
          : h('p', { class: 'note' }, 'The kernel reports no pressure (PSI), or the agent is too old to report it.'),
        n.pressure
          ? h('p', { class: 'note' }, 'Part of the minute before the report in which some tasks waited.')
          : null,
        h('h3', null, 'Harm to online pods'),
        h(
          'p',
          null,
          n.harm
            ? ['Known ', harms[n.harm] || `by ${n.harm}`, '. Batch is pushed back when it does harm.']
            : 'Not measured: batch gets what online pods leave under the waterline.',
        ),
      ),
    ),
    cpuMap(n, owners),
    h(
      'section',
      { class: 'card', 'aria-labelledby': 'pods' },
      h(
        'div',
        { class: 'top' },
        h('h2', { id: 'pods' }, 'Pods'),
        h(
          'p',
          { class: 'note' },
          n.hiddenPods ? 'Pods of namespaces in which you may not list pods are left out.' : '',
        ),
      ),
      n.pods.length === 0
        ? h(
            'p',
            { class: 'note' },
            n.hiddenPods ? 'You may not list the pods of this node.' : 'No pod is on this node.',
          )
        : table(
            'Pods',
            [
              {
                head: 'pod',
                left: true,
                cell: (p) =>
                  h(
                    'span',
                    { onmouseenter: () => lit(p, true), onmouseleave: () => lit(p, false) },
                    `${p.namespace}/${p.name}`,
                  ),
              },
              {
                head: 'class',
                left: true,
                cell: (p) => (p.tier && p.tier !== 'batch' ? `${p.class} (${p.tier})` : p.class),
              },
              { head: 'weight asked', cell: (p) => p.weight || '–' },
              { head: 'CPU', cell: (p) => cores(p.cpu) },
              { head: 'memory', cell: (p) => bytes(p.memory) },
              {
                head: 'CPUs of its own',
                left: true,
                wrap: true,
                cell: (p) =>
                  !p.cpus
                    ? '–'
                    : p.cpus.has
                      ? p.cpus.text
                      : [why(p.cpus.reason), p.cpus.text ? ` (${p.cpus.text})` : ''],
              },
              { head: 'phase', left: true, cell: (p) => (p.leaving ? 'leaving' : p.phase) },
            ],
            n.pods,
          ),
      n.morePods ? h('p', { class: 'note' }, `Only the first ${n.pods.length} pods are shown.`) : null,
      h(
        'p',
        { class: 'note' },
        'CPU and memory are what the pod requests: batch resources of a batch pod. The weight is what its annotation asks for, in shares; the policy can bound it or give another. ',
        h('code', null, `waterline explain node ${n.name}`),
        ' shows every decision with its numbers.',
      ),
    ),
  );
}

function resource(name, r, amount, plain, why) {
  const id = `r-${name}`;
  if (!r) {
    return h(
      'section',
      { class: 'card', 'aria-labelledby': id },
      h('div', { class: 'top' }, h('h2', { id }, name)),
      h('p', { class: 'note' }, 'Not measured yet.'),
    );
  }
  const batch = r.batch ?? 0;
  const used = r.online + r.system + batch;
  return h(
    'section',
    { class: 'card', 'aria-labelledby': id },
    h(
      'div',
      { class: 'top' },
      h('h2', { id }, name),
      h('p', { class: 'note' }, `${percent(used, r.capacity)} of ${amount(r.capacity)} in use`),
    ),
    bar(
      r.capacity,
      [
        [r.online, 'k-online'],
        [r.system, 'k-system'],
        [batch, 'k-batch'],
      ],
      r.ceiling,
    ),
    h(
      'ul',
      { class: 'legend' },
      [
        ['k-online', 'online', r.online],
        ['k-system', 'system', r.system],
        ['k-batch', 'batch', r.batch],
        ['dash', 'waterline', r.ceiling],
      ].map(([key, text, v]) => h('li', null, h('span', { class: `key ${key}` }), `${text} ${plain(v)}`)),
    ),
    h('h3', null, 'Sold to batch'),
    rows([
      [
        'offer',
        [amount(r.offer.batch + r.offer.mid), r.offer.mid ? `, of which ${plain(r.offer.mid)} in the tier mid` : ''],
      ],
      ['requested by pods', amount(r.bound.batch + r.bound.mid)],
      ['allowance now', amount(r.allowance)],
      ['predicted peak', `${plain(r.peakHour)} within an hour, ${plain(r.peakDay)} within a day`],
      ['reason', r.reason ? why(r.reason) : ''],
    ]),
  );
}

// cpuOwners finds which pod has which CPUs. A condition lists CPUs, or names of containers each with its CPUs.
function cpuOwners(pods) {
  const of = new Map();
  for (const p of pods) {
    if (!p.cpus?.has) continue;
    for (const part of p.cpus.text.split(', ')) {
      for (const range of part.split(' ').pop().split(',')) {
        const [from, to] = range.split('-').map(Number);
        if (!(from >= 0) || to - from > 4096) continue;
        for (let id = from; id <= (to ?? from); id++) of.set(id, p);
      }
    }
  }
  const lit = (p, on) => {
    for (const e of document.querySelectorAll('.cpu.own'))
      if (e.dataset.pod === `${p.namespace}/${p.name}`) e.classList.toggle('lit', on);
  };
  return { of, lit };
}

function cpuMap(n, owners) {
  if (!n.cpus) return null;
  const zones = new Map();
  for (const c of n.cpus.cpus) {
    const zone = zones.get(c.numa) || new Map();
    zones.set(c.numa, zone.set(c.core, [...(zone.get(c.core) || []), c]));
  }
  const box = (c) => {
    const p = owners.get(c.id);
    const kind = c.free ? '' : p ? 'own' : 'kept';
    const text = c.free ? 'free' : p ? `${p.namespace}/${p.name}` : 'reserved, or of a pod that is not shown';
    return h(
      'span',
      {
        class: `cpu ${kind}`,
        title: `CPU ${c.id}: ${text}`,
        'data-pod': p && !c.free ? `${p.namespace}/${p.name}` : null,
      },
      c.id,
    );
  };
  const free = n.cpus.cpus.filter((c) => c.free).length;
  return h(
    'section',
    { class: 'card', 'aria-labelledby': 'cpus' },
    h(
      'div',
      { class: 'top' },
      h('h2', { id: 'cpus' }, 'CPUs'),
      h(
        'p',
        { class: 'note' },
        `${free} of ${n.cpus.cpus.length} are free; ${n.cpus.maxExclusive} of them can become a pod’s own`,
      ),
    ),
    h(
      'div',
      { class: 'cpus' },
      [...zones].map(([id, zone]) =>
        h(
          'div',
          { class: 'numa' },
          `NUMA node ${id}`,
          h(
            'div',
            { class: 'cores' },
            [...zone.values()].map((threads) => h('div', { class: 'core' }, threads.map(box))),
          ),
        ),
      ),
    ),
    h(
      'div',
      { class: 'under' },
      h(
        'ul',
        { class: 'legend' },
        [
          ['k-free', 'free'],
          ['k-online', 'a pod’s own'],
          ['k-batch', 'reserved, or of a pod that is not shown'],
        ].map(([key, text]) => h('li', null, h('span', { class: `key ${key}` }), text)),
      ),
    ),
  );
}
