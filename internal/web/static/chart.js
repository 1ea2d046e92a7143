import { h } from './dom.js';

const left = 52;
const bottom = 24;
const top = 10;

// steps returns round values for an axis up to a maximum.
export function steps(most, about) {
  if (!(most > 0)) return [0, 1];
  const raw = most / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((f) => f * power >= raw) * power;
  const all = [];
  for (let v = 0; v < most + step * 0.999; v += step) all.push(Math.round(v * 1e6) / 1e6);
  return all;
}

// timeChart draws layers on each other, and lines over them. Points are {at, values}, a step apart; one whose values
// are null is a gap, and so is a missing one. The arrow keys move from point to point.
//
//   layers, lines: [{name, kind, of: (values) => number}]
//   format: (number) => text;  clock: (at) => text;  name: for readers of the screen
export function timeChart({ points, step, from, to, layers, lines, format, clock, name, low }) {
  const root = h('div', { class: low ? 'chart low' : 'chart' });
  let at = -1;
  let width = 0;

  const sum = (v) => layers.reduce((s, l) => s + l.of(v), 0);
  const most = points.reduce(
    (m, p) => (p.values ? Math.max(m, sum(p.values), ...lines.map((l) => l.of(p.values))) : m),
    0,
  );
  const ticks = steps(most, low ? 3 : 5);
  const peak = ticks[ticks.length - 1] || 1;

  function draw() {
    width = root.clientWidth || 700;
    const height = low ? 150 : innerWidth <= 720 ? 230 : 300;
    const x = (t) => left + ((width - left - 4) * (t - from)) / Math.max(1, to - from);
    const y = (v) => height - bottom - ((height - bottom - top) * v) / peak;
    const parts = [];
    for (const v of ticks) {
      parts.push(
        h('line', { class: v === 0 ? 'axis' : 'grid', x1: left, x2: width - 4, y1: y(v), y2: y(v) }),
        h('text', { x: left - 8, y: y(v) + 4, 'text-anchor': 'end' }, format(v)),
      );
    }
    for (const t of times(from, to, Math.max(2, Math.floor((width - left) / 90)))) {
      parts.push(h('text', { x: x(t), y: height - 6, 'text-anchor': x(t) > width - 30 ? 'end' : 'middle' }, clock(t)));
    }
    // Runs of neighbouring points; a gap ends a run.
    const runs = [];
    points.forEach((p, i) => {
      if (!p.values) return;
      const before = points[i - 1];
      if (!before?.values || p.at - before.at > 1.5 * step) runs.push([]);
      runs[runs.length - 1].push(p);
    });
    const edge = (run, of) =>
      run.flatMap((p) => [
        [x(Math.max(p.at, from)), y(of(p.values))],
        [x(Math.max(from, Math.min(p.at + step, to))), y(of(p.values))],
      ]);
    const path = (list) => list.map(([a, b], i) => `${i ? 'L' : 'M'}${a.toFixed(1)} ${b.toFixed(1)}`).join('');
    for (const run of runs) {
      let under = () => 0;
      for (const l of layers) {
        const below = under;
        const above = (v) => below(v) + l.of(v);
        parts.push(
          h('path', { class: `f-${l.kind}`, d: path([...edge(run, above), ...edge(run, below).reverse()]) + 'Z' }),
        );
        under = above;
      }
      for (const l of lines) parts.push(h('path', { class: `l-${l.kind}`, d: path(edge(run, l.of)) }));
    }
    const cross = h('line', { class: 'cross', y1: top, y2: height - bottom, visibility: 'hidden' });
    const tip = h('div', { class: 'tip', hidden: true });
    const svg = h(
      'svg',
      {
        viewBox: `0 0 ${width} ${height}`,
        role: 'application',
        tabindex: '0',
        'aria-label': `${name}. Arrow keys read it point by point.`,
        'aria-roledescription': 'chart',
        'data-key': `chart ${name}`,
      },
      parts,
      cross,
    );
    const word = h('p', { class: 'hidden', 'aria-live': 'polite' });

    const point = (i) => {
      at = i;
      const p = points[i];
      if (!p) {
        cross.setAttribute('visibility', 'hidden');
        tip.hidden = true;
        return;
      }
      const middle = x(Math.min(p.at + step / 2, to));
      cross.setAttribute('x1', middle);
      cross.setAttribute('x2', middle);
      cross.setAttribute('visibility', 'visible');
      const list = p.values ? [...lines, ...[...layers].reverse()].map((l) => [l, l.of(p.values)]) : [];
      tip.replaceChildren(
        h('b', null, clock(p.at)),
        ...list.map(([l, v]) =>
          h('div', null, h('span', { class: l.key }), h('span', null, l.name), h('span', null, format(v))),
        ),
      );
      if (!p.values) tip.append('no figures');
      tip.hidden = false;
      const wide = tip.offsetWidth;
      tip.style.transform = `translate(${Math.round(middle + 14 + wide > width ? middle - 14 - wide : middle + 14)}px, 12px)`;
      if (document.activeElement === svg)
        word.textContent = `${clock(p.at)}: ${list.map(([l, v]) => `${l.name} ${format(v)}`).join(', ') || 'no figures'}`;
    };
    svg.addEventListener('pointermove', (e) => {
      const t = from + ((e.offsetX - left) / (width - left - 4)) * (to - from);
      let best = -1;
      points.forEach((p, i) => {
        if (p.at <= t) best = i;
      });
      point(best);
    });
    svg.addEventListener('pointerleave', () => point(-1));
    svg.addEventListener('blur', () => point(-1));
    svg.addEventListener('keydown', (e) => {
      const last = points.length - 1;
      const to = { ArrowLeft: at < 0 ? last : at - 1, ArrowRight: at < 0 ? 0 : at + 1, Home: 0, End: last, Escape: -1 }[
        e.key
      ];
      if (to === undefined) return;
      e.preventDefault();
      point(Math.min(last, to < 0 && e.key !== 'Escape' ? 0 : to));
    });
    const had = root.contains(document.activeElement);
    root.replaceChildren(svg, tip, word);
    if (had) svg.focus({ preventScroll: true });
  }
  new ResizeObserver(() => {
    if (root.clientWidth && root.clientWidth !== width) draw();
  }).observe(root);
  return root;
}

// times returns round times of the day between two moments.
function times(from, to, most) {
  const step =
    [300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200].find((s) => (to - from) / s <= most) || 86400;
  const zone = new Date(from * 1000).getTimezoneOffset() * 60;
  const all = [];
  for (let t = Math.ceil((from - zone) / step) * step + zone; t <= to; t += step) all.push(t);
  return all;
}
