// From the answer of the API to what a chart draws. Pure.
import { number } from './format.mjs';

const plain = p => ({ step: p[0], v: number(p[2]) });
const bucket = p => ({ step: p[0], lo: number(p[2]), hi: number(p[3]), v: number(p[4]) });

// curve gives {x, y, lo, hi, nan, last} with ascending steps. Of points with one step the one that came last counts. y is null where there is
// no finite value. lo and hi are there for buckets only. last is {step, value} of the newest point in order of arrival.
export const curve = (s, view) => {
  const points = s.buckets ? s.buckets.map(bucket) : (s.points || []).map(plain);
  let last = points.length ? { step: points.at(-1).step, value: points.at(-1).v } : null;
  if (s.buckets && view?.last) { // a bucket's mean is not the last value: the summary has that
    last = { step: view.last.step, value: number(view.last.value) };
    points.push({ step: last.step, lo: last.value, hi: last.value, v: last.value });
  }
  const at = new Map();
  for (const p of points) at.set(p.step, p);
  const sorted = [...at.values()].sort((a, b) => a.step - b.step), fin = v => Number.isFinite(v) ? v : null;
  return {
    x: sorted.map(p => p.step), y: sorted.map(p => fin(p.v)), odd: sorted.map(p => Number.isFinite(p.v) ? '' : String(p.v)),
    lo: s.buckets ? sorted.map(p => fin(p.lo)) : null, hi: s.buckets ? sorted.map(p => fin(p.hi)) : null, last,
  };
};

// groups sorts curves by the first part of their names; the group of the primary one comes first, names without a group last.
export const groups = items => {
  const by = new Map();
  for (const c of items) {
    const i = c.name.indexOf('/'), g = i > 0 ? c.name.slice(0, i) : '';
    if (!by.has(g)) by.set(g, []);
    by.get(g).push(c);
  }
  const rank = ([g, cs]) => cs.some(c => c.view?.primary) ? 0 : g ? 1 : 2;
  for (const cs of by.values()) cs.sort((a, b) => (b.view?.primary ? 1 : 0) - (a.view?.primary ? 1 : 0));
  return [...by].sort((a, b) => rank(a) - rank(b));
};
