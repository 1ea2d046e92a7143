// The token stays in this tab: in memory and in sessionStorage, which ends with the tab.

const key = 'waterline-token';
let token = sessionStorage.getItem(key) || '';
const held = new Map(); // by path: the tag and the data of the last answer

// Failure is an answer that is not data. Its message is for people.
export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const signedIn = () => token !== '';

export function signIn(given) {
  token = given.trim();
  held.clear();
  nodes.clear();
  if (token) sessionStorage.setItem(key, token);
  else sessionStorage.removeItem(key);
}

// takeFromAddress takes a token from the part of the address that browsers do not send, and removes it there.
export function takeFromAddress() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return;
  signIn(decodeURIComponent(found[1]));
  history.replaceState(null, '', location.pathname + '#/');
}

// get returns the data of a path. As long as the data is the same, it is the same object.
export async function get(path) {
  const last = held.get(path);
  const headers = { Authorization: `Bearer ${token}` };
  if (last) headers['If-None-Match'] = last.tag;
  let answer;
  try {
    answer = await fetch(`api/v1/${path}`, { headers, cache: 'no-store', credentials: 'omit', redirect: 'error' });
  } catch {
    throw new Failure(0, 'The manager does not answer. This page keeps trying.');
  }
  if (answer.status === 304 && last) return last.data;
  const data = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Failure(answer.status, data.error || `The manager answers with status ${answer.status}.`);
  if (!path.includes('since=')) held.set(path, { tag: answer.headers.get('ETag') || '', data });
  return data;
}

// fields names the parts of an account.
const fields = ['capacity', 'ceiling', 'system', 'online', 'batch', 'offer', 'bound', 'allowance'];
export const account = (list) => (list ? Object.fromEntries(fields.map((f, i) => [f, list[i]])) : null);

// nodes are all nodes by name, brought up to date by what has changed.
const nodes = new Map();
let revision = '';
let sorted = [];

export async function allNodes() {
  const part = await get(nodes.size ? `nodes?since=${encodeURIComponent(revision)}` : 'nodes');
  if (revision === part.revision && nodes.size) return { list: sorted, changed: false };
  if (part.full) nodes.clear();
  for (const [name, state, policy, cpu, memory, pressure, harm, changed, hot] of part.nodes) {
    nodes.set(name, { name, state, policy, cpu: account(cpu), memory: account(memory), pressure, harm, changed, hot });
  }
  for (const name of part.gone) nodes.delete(name);
  revision = part.revision;
  sorted = [...nodes.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  return { list: sorted, changed: true };
}
