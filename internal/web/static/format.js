// Amounts of CPU are in milli-cores and of memory in MiB, as in the view.

const number = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

function short(v) {
  if (v === null || v === undefined) return 'not known';
  return Math.abs(v) >= 100 || Number.isInteger(v) ? number.format(v) : v.toFixed(1);
}

export const count = (n) => number.format(n);
export const cores = (milli) => (milli === null || milli === undefined ? 'not known' : short(milli / 1000));
export const withCores = (milli) => (milli === null || milli === undefined ? 'not known' : `${cores(milli)} cores`);

export function bytes(mebi) {
  if (mebi === null || mebi === undefined) return 'not known';
  if (mebi >= 10 * 1024 * 1024) return `${short(mebi / 1024 / 1024)} TiB`;
  return mebi >= 1024 ? `${short(mebi / 1024)} GiB` : `${short(mebi)} MiB`;
}

export const percent = (part, whole) => (whole > 0 && part !== null ? `${Math.round((100 * part) / whole)} %` : '–');

export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return `${s} s`;
  if (s < 90 * 60) return `${Math.round(s / 60)} min`;
  if (s < 36 * 3600) return `${Math.round(s / 360) / 10} h`;
  return `${Math.round(s / 86400)} days`;
}

export const ago = (at) => (at ? `${span(Date.now() / 1000 - at)} ago` : 'never');
export const clock = (at) => new Date(at * 1000).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' });
export const date = (at) =>
  new Date(at * 1000).toLocaleString('en-GB', { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' });
export const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many}`;

// The states of a node, in the order of the legend, and what each means.
export const states = {
  selling: 'has an offer for batch',
  full: 'may sell, and has nothing to sell now',
  enforcing: 'does what its policy says, which sells nothing',
  draining: 'the policy’s window ends soon: nothing new is sold',
  closed: 'outside the policy’s windows: nothing is sold',
  observing: 'decides and reports, and writes nothing (mode Observe)',
  disabled: 'switched off by the policy (mode Disabled)',
  hot: 'sells nothing until its trouble is over',
  withdrawn: 'its agent or kubelet is lost: the manager withdrew the offer',
  silent: 'its last report is more than half an hour old',
};
export const troubled = new Set(['hot', 'withdrawn', 'silent']);
