import { h } from './dom.js';
import { ago, cores, states, troubled } from './format.js';

// The states whose cells are hollow.
const calm = new Set(['closed', 'observing', 'disabled', 'silent']);

// heatMap shows thousands of nodes as cells of a canvas. The pointer and the arrow keys choose a cell, and open(node)
// is called for a click or Enter.
export function heatMap(open) {
  const canvas = h('canvas', {
    tabindex: '0',
    role: 'application',
    'aria-roledescription': 'heat map',
    'data-key': 'map',
    'aria-label': 'Heat map of nodes. Arrow keys choose a node, Enter opens it. The list below has the same nodes.',
  });
  const mark = h('div', { class: 'at', hidden: true });
  const tip = h('div', { class: 'tip', hidden: true });
  const word = h('p', { class: 'hidden', 'aria-live': 'polite' });
  const under = h('div', { class: 'under' });
  const element = h('div', null, h('div', { class: 'map' }, canvas, mark, tip, word), under);
  let nodes = [];
  let colour = null;
  let byState = false;
  let chosen = null; // the name of a node
  let columns = 1;
  let size = 8;
  let gap = 1;
  let width = 0;
  let palette = null;

  function layout() {
    width = canvas.parentElement.clientWidth;
    if (!width) return false;
    const tall = innerWidth <= 720 ? 380 : 400;
    size = 30;
    while (size > 5 && Math.ceil(nodes.length / Math.max(1, Math.floor(width / size))) * size > tall) size -= 1;
    gap = size >= 12 ? 2 : 1;
    columns = Math.max(1, Math.floor(width / size));
    return true;
  }

  function draw() {
    if (!layout()) return;
    palette = palette || readPalette();
    const lines = Math.max(1, Math.ceil(nodes.length / columns));
    const scale = devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(lines * size * scale);
    canvas.style.height = `${lines * size}px`;
    // All cells at once: thousands of calls of fillRect take several times as long.
    const c = canvas.getContext('2d');
    const image = c.createImageData(canvas.width, canvas.height);
    const pixels = new Uint32Array(image.data.buffer);
    const box = (x, y, w, h, fill) => {
      const right = Math.round((x + w) * scale);
      const below = Math.round((y + h) * scale);
      const from = Math.round(x * scale);
      for (let row = Math.round(y * scale); row < below; row++)
        pixels.fill(fill, row * canvas.width + from, row * canvas.width + right);
    };
    const cell = size - gap;
    const corner = Math.max(3, Math.round(cell / 2.2));
    for (let i = 0; i < nodes.length; i++) {
      const n = nodes[i];
      const x = (i % columns) * size;
      const y = Math.floor(i / columns) * size;
      const value = byState ? null : colour.of(n);
      const hollow = byState ? calm.has(n.state) : value === null;
      box(
        x,
        y,
        cell,
        cell,
        byState
          ? palette.states[n.state]
          : value === null
            ? palette.line
            : palette.ramp[Math.min(255, Math.max(0, Math.round((255 * value) / colour.high)))],
      );
      if (hollow && cell > 4) box(x + 2, y + 2, cell - 4, cell - 4, palette.card);
      // Trouble shows whatever the colour means.
      if (!byState && troubled.has(n.state))
        for (let j = 0; j < corner; j++) box(x + cell - corner + j, y + j, corner - j, 1, palette.states[n.state]);
    }
    c.putImageData(image, 0, 0);
    point(
      nodes.findIndex((n) => n.name === chosen),
      false,
    );
  }

  function point(i, speak) {
    const n = nodes[i];
    mark.hidden = tip.hidden = !n;
    chosen = n ? n.name : null;
    if (!n) return;
    const x = (i % columns) * size;
    const y = Math.floor(i / columns) * size;
    mark.style.width = mark.style.height = `${size - gap}px`;
    mark.style.transform = `translate(${x}px, ${y}px)`;
    const part = (name, key, v) =>
      h('div', null, h('span', { class: `key ${key}` }), h('span', null, name), h('span', null, v));
    tip.replaceChildren(
      h('b', null, n.name),
      h('span', { class: `badge s-${n.state}` }, n.hot ? `${n.state}: ${n.hot}` : n.state),
      ...(n.cpu
        ? [
            part('online', 'k-online', cores(n.cpu.online)),
            part('system', 'k-system', cores(n.cpu.system)),
            part('batch', 'k-batch', cores(n.cpu.batch)),
            part('sold', 'k-free', cores(n.cpu.offer)),
            part('capacity', 'k-free', `${cores(n.cpu.capacity)} cores`),
          ]
        : ['no figures']),
      h('div', null, `report ${ago(n.changed)}`),
    );
    const wide = tip.offsetWidth;
    tip.style.transform = `translate(${x + size + 10 + wide > width ? Math.max(0, x - 10 - wide) : x + size + 10}px, ${y}px)`;
    if (speak) {
      const value = byState ? null : colour.of(n);
      word.textContent = `${n.name}, ${n.state}, policy ${n.policy || 'none'}, ${byState ? '' : `${colour.name} ${value === null ? 'not known' : `${Math.round(100 * value)} %`}, `}report ${ago(n.changed)}`;
    }
  }

  const under_ = (e) => {
    const col = Math.floor(e.offsetX / size);
    return col >= columns ? -1 : Math.floor(e.offsetY / size) * columns + col;
  };
  canvas.addEventListener('pointermove', (e) => {
    const i = under_(e);
    if (nodes[i]?.name !== chosen) point(i, false);
  });
  canvas.addEventListener('pointerleave', () => {
    if (document.activeElement !== canvas) point(-1, false);
  });
  canvas.addEventListener('blur', () => point(-1, false));
  canvas.addEventListener('click', (e) => {
    const n = nodes[under_(e)];
    if (n) open(n);
  });
  canvas.addEventListener('keydown', (e) => {
    const at = nodes.findIndex((n) => n.name === chosen);
    const last = nodes.length - 1;
    if (e.key === 'Enter' && at >= 0) {
      open(nodes[at]);
      return;
    }
    const to = {
      ArrowLeft: at - 1,
      ArrowRight: at + 1,
      ArrowUp: at - columns,
      ArrowDown: at + columns,
      Home: 0,
      End: last,
      Escape: -2,
    }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    if (to === -2) point(-1, false);
    else if (at < 0) point(0, true);
    else if (to >= 0 && to <= last) point(to, true);
  });
  new ResizeObserver(() => {
    if (canvas.parentElement.clientWidth !== width) draw();
  }).observe(element);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    palette = null;
    draw();
    legend();
  });

  function legend() {
    palette = palette || readPalette();
    if (byState) {
      const seen = new Set(nodes.map((n) => n.state));
      under.replaceChildren(
        h(
          'ul',
          { class: 'legend' },
          Object.keys(states)
            .filter((s) => seen.has(s))
            .map((s) => h('li', null, h('span', { class: `badge s-${s}` }, s))),
        ),
      );
      return;
    }
    const strip = h('canvas', { width: 256, height: 1, 'aria-hidden': 'true' });
    const c = strip.getContext('2d');
    const line = c.createImageData(256, 1);
    new Uint32Array(line.data.buffer).set(palette.ramp);
    c.putImageData(line, 0, 0);
    under.replaceChildren(
      h(
        'div',
        { class: 'scale' },
        `${colour.name}: 0 %`,
        strip,
        `${Math.round(100 * colour.high)} %${colour.high < 1 ? ' and more' : ''}`,
      ),
      h('span', { class: 'scale' }, 'A marked corner: hot, withdrawn or silent. Hollow: not known.'),
    );
  }

  return {
    element,
    show(list, by, states) {
      const other = colour !== by || byState !== states;
      nodes = list;
      colour = by;
      byState = states;
      draw();
      if (other || states) legend();
    },
  };
}

// readPalette makes the colours of cells, as pixels, from those of the page.
function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => pixel(rgb(style.getPropertyValue(`--${name}`).trim()));
  const c = h('canvas', { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true });
  const rgb = (text) => {
    c.fillStyle = text;
    c.fillRect(0, 0, 1, 1);
    return [...c.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const pixel = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  const stops = (
    dark ? ['#17242d', '#1d5a74', '#3cbfea', '#d8f4ff'] : ['#e6eff4', '#8fc3d8', '#0879a0', '#06304a']
  ).map(rgb);
  const ramp = Array.from({ length: 256 }, (_, i) => {
    const t = (i / 255) * (stops.length - 1);
    const a = stops[Math.floor(t)];
    const b = stops[Math.min(stops.length - 1, Math.floor(t) + 1)];
    return pixel(a.map((v, j) => Math.round(v + (b[j] - v) * (t % 1))));
  });
  return {
    ramp,
    card: read('card'),
    line: read('line'),
    states: {
      selling: read('main'),
      full: read('other'),
      enforcing: read('soft'),
      draining: read('mark'),
      hot: read('mark'),
      withdrawn: read('bad'),
      silent: read('bad'),
      closed: read('soft'),
      observing: read('soft'),
      disabled: read('soft'),
    },
  };
}
