// Talking to the server: the session of this page, one request, and following something by long-poll. It knows no page.
import { signal } from './vendor/signals-core.mjs';
import { T } from './text.mjs';

// ---- session: a token of the page's own, sent as a header; there are no cookies
const KEY = 'gpuctl.session';
const read = () => { try { const s = JSON.parse(localStorage.getItem(KEY)); return typeof s?.token === 'string' ? s : null; } catch { return null; } };
export const session = signal(read());
export const keep = s => { if (s) localStorage.setItem(KEY, JSON.stringify(s)); else localStorage.removeItem(KEY); session.value = s; };
addEventListener('storage', e => { if (e.key === KEY) session.value = read(); }); // another tab logged in or out

// ---- link: does the server answer, and since when not
export const link = signal({ ok: true, since: Date.now() });
let heard = Date.now();
const found = () => { heard = Date.now(); if (!link.value.ok) link.value = { ok: true, since: heard }; };
const lost = () => { if (link.value.ok) link.value = { ok: false, since: heard }; };

// the server's clock: ages are counted by it, a phone may be minutes off
let offset = 0;
export const serverNow = () => Date.now() + offset;
const tune = date => { const ms = Date.parse(date) + 500 - Date.now(); if (Math.abs(ms) > 2000) offset = ms; else if (ms === ms) offset = 0; };

// what the server refused, in its own words
export class Refusal extends Error {
  constructor(status, p) { super(p.detail || p.title || T.foreign); Object.assign(this, { status, code: p.code, hint: p.hint, request: p.request_id }); }
  get passing() { return this.status >= 500 || this.status === 429 || this.status === 408; }
}
export class Unreachable extends Error {}

const SLACK = 15; // seconds beyond the wait that a request asks for
export const call = async (path, { method = 'GET', body, signal, wait = 0, token = session.value?.token } = {}) => {
  const limit = AbortSignal.timeout((wait + SLACK) * 1000);
  const headers = { Accept: 'application/json' };
  if (token) { headers['X-GPUCTL-Token'] = token; headers.Authorization = 'Bearer ' + token; } // twice: a strict proxy blanks the second
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let r, text;
  try {
    r = await fetch('/api/v1' + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal: signal ? AbortSignal.any([signal, limit]) : limit, cache: 'no-store', credentials: 'omit', redirect: 'error' });
    text = await r.text();
  } catch (e) {
    if (signal?.aborted) throw e;
    lost();
    throw new Unreachable(T.unreachable);
  }
  let v = null;
  try { v = text ? JSON.parse(text) : null; } catch { /* not from the server: told below */ }
  if (r.ok ? v === null && r.status !== 204 : !v?.code) { // a proxy's page
    lost();
    throw new Unreachable(T.foreign);
  }
  tune(r.headers.get('Date'));
  found();
  if (r.ok) return v;
  if (r.status === 401 && token && token === session.value?.token) keep(null);
  throw new Refusal(r.status, v);
};

// ---- following
const nudged = new EventTarget();
export const nudge = () => nudged.dispatchEvent(new Event('now'));
addEventListener('online', nudge);
document.addEventListener('visibilitychange', () => { if (!document.hidden) nudge(); });
const sleep = (ms, signal) => new Promise(done => {
  const end = () => { clearTimeout(t); nudged.removeEventListener('now', end); signal.removeEventListener('abort', end); done(); };
  const t = setTimeout(end, ms);
  nudged.addEventListener('now', end);
  signal.addEventListener('abort', end);
});
const untilSeen = async signal => { while (document.hidden && !signal.aborted) await sleep(60000, signal); };

// follow runs step again and again until it answers null, which is "nothing more will come"; else step answers how long to pause, in ms.
// What passes is tried again, later each time; what does not is told to fail. The answer of follow stops it, and its request.
export const follow = (step, fail = () => {}) => {
  const c = new AbortController();
  const turn = async () => {
    for (let fails = 0; !c.signal.aborted;) {
      await untilSeen(c.signal);
      if (c.signal.aborted) return;
      try {
        const pause = await step(c.signal);
        fails = 0;
        fail(null);
        if (pause === null) return;
        await sleep(pause, c.signal);
      } catch (e) {
        if (c.signal.aborted) return;
        if (!(e instanceof Unreachable || e instanceof Refusal)) throw e;
        if (e instanceof Refusal) fail(e);
        if (e instanceof Refusal && !e.passing) return;
        fails++;
        await sleep(Math.min(30000, 500 * 2 ** fails) * (0.5 + Math.random() / 2), c.signal);
      }
    }
  };
  turn();
  return () => c.abort();
};
