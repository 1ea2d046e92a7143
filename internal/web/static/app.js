import { Failure, get, signIn, signedIn, takeFromAddress } from './api.js';
import { h, say, show } from './dom.js';
import { span } from './format.js';
import { cluster } from './cluster.js';
import { nodes } from './nodes.js';
import { node } from './node.js';
import { pools } from './pools.js';
import { policies } from './policies.js';
import { gain } from './gain.js';

// A page has a title, how often it loads, and mount, which fills an element and returns update: load and show again.
const pages = [
  { path: '', name: 'Cluster', page: cluster },
  { path: 'nodes', name: 'Nodes', page: nodes },
  { path: 'pools', name: 'Pools', page: pools },
  { path: 'policies', name: 'Policies', page: policies },
  { path: 'gain', name: 'Gain', page: gain },
];

const main = document.getElementById('main');
const nav = document.getElementById('nav');
const who = document.getElementById('who');
const life = h('span', { class: 'life', 'aria-live': 'off' });
let current = null; // the page that is shown, with a timer
let me = null;

// place splits the address behind # into page, name and settings.
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const [page, ...rest] = path.split('/');
  return { page, name: decodeURIComponent(rest.join('/')), query: new URLSearchParams(query || '') };
}

async function route(event) {
  if (location.hash === '#main') return;
  takeFromAddress();
  leave();
  if (!signedIn()) return login('');
  const at = place();
  const entry = pages.find((p) => p.path === at.page);
  const page = at.page === 'node' ? node : entry?.page;
  if (!page) {
    location.hash = '#/';
    return;
  }
  const mine = { alive: true, timer: 0, loaded: 0, problem: null };
  current = mine;
  try {
    me = me || (await get('me'));
  } catch (e) {
    if (current === mine) failed(mine, e, () => route());
    return;
  }
  if (current !== mine) return;
  chrome(at.page === 'node' ? 'nodes' : at.page);
  document.title = `${at.name || entry?.name || 'Node'} – Waterline`;
  const root = h('div');
  const banner = h('div', { role: 'alert' });
  main.replaceChildren(banner, root);
  if (event) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
    say(document.title);
  }
  const update = page.mount(root, { me, name: at.name, query: at.query, alive: () => mine.alive });
  const turn = async () => {
    try {
      await update();
      mine.loaded = Date.now();
      mine.problem = null;
      banner.replaceChildren();
    } catch (e) {
      if (!mine.alive) return;
      if (!(e instanceof Failure)) throw e;
      if (e.status === 401) {
        signIn('');
        me = null;
        leave();
        login(e.message);
        return;
      }
      mine.problem = e;
      if (e.status === 403 || e.status === 404) {
        show(
          root,
          h('div', { class: 'head' }, h('h1', null, at.name || entry.name)),
          h('p', { class: 'empty' }, e.message),
        );
        banner.replaceChildren();
      } else if (banner.textContent !== e.message) banner.replaceChildren(h('p', { class: 'notice' }, e.message));
    }
    tell();
    clearTimeout(mine.timer);
    if (mine.alive) mine.timer = setTimeout(turn, document.hidden ? 60000 : page.every);
  };
  mine.turn = turn;
  turn();
}

function leave() {
  if (!current) return;
  current.alive = false;
  clearTimeout(current.timer);
  current = null;
}

function failed(mine, e, again) {
  if (!(e instanceof Failure)) throw e;
  if (e.status === 401) {
    signIn('');
    me = null;
    return login(e.message);
  }
  chrome('');
  main.replaceChildren(h('h1', null, 'Waterline'), h('p', { class: 'notice', role: 'alert' }, e.message));
  mine.timer = setTimeout(again, 3000);
}

// chrome shows the navigation and the user.
function chrome(here) {
  nav.hidden = false;
  show(
    nav,
    pages.map((p) =>
      h(
        'a',
        {
          href: `#/${p.path}`,
          'aria-current': p.path === here ? 'page' : null,
          'data-key': `nav ${p.path}`,
        },
        p.name,
      ),
    ),
  );
  show(
    who,
    life,
    h('span', { title: me?.user }, me?.user || ''),
    h(
      'button',
      {
        class: 'plain',
        type: 'button',
        onclick: () => {
          signIn('');
          me = null;
          leave();
          login('');
        },
      },
      'Sign out',
    ),
  );
}

function tell() {
  if (!current) return;
  const age = (Date.now() - current.loaded) / 1000;
  life.textContent = current.problem ? 'not up to date' : current.loaded ? `loaded ${span(age)} ago` : 'loading';
}
setInterval(tell, 1000);

function login(problem) {
  document.title = 'Sign in – Waterline';
  nav.hidden = true;
  who.replaceChildren();
  const input = h('input', {
    id: 'token',
    name: 'token',
    type: 'password',
    autocomplete: 'off',
    spellcheck: 'false',
    required: true,
    'aria-describedby': problem ? 'problem' : null,
    'aria-invalid': problem ? 'true' : null,
  });
  const submit = (event) => {
    event.preventDefault();
    signIn(input.value);
    me = null;
    route(event);
  };
  main.replaceChildren(
    h(
      'div',
      { class: 'login' },
      h(
        'div',
        { class: 'card prose' },
        h('h1', null, 'Sign in'),
        h(
          'form',
          { onsubmit: submit },
          h('div', { class: 'field' }, h('label', { for: 'token' }, 'Bearer token'), input),
          problem ? h('p', { class: 'error', id: 'problem', role: 'alert' }, problem) : null,
          h('button', { type: 'submit' }, 'Sign in'),
        ),
        h(
          'p',
          { class: 'note' },
          'The API server checks the token. You see what it may read: nodereports, colocationpolicies, workerpools and pods.',
        ),
        h(
          'p',
          { class: 'note' },
          'A token for a ServiceAccount: ',
          h('code', null, 'kubectl create token NAME -n NAMESPACE'),
        ),
        h('p', { class: 'note' }, 'The token stays in this tab, and is gone when you close the tab or sign out.'),
      ),
    ),
  );
  input.focus();
}

document.addEventListener('visibilitychange', () => {
  if (!document.hidden) current?.turn?.();
});
addEventListener('hashchange', route);
route();
