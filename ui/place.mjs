// Where the page is: path and query. All of what is chosen stands in the address, so that a copied link shows the same.
import { signal } from './vendor/signals-core.mjs';

const read = () => ({ path: location.pathname, query: location.search });
export const place = signal(read());
const moved = () => { place.value = read(); };
addEventListener('popstate', moved);

export const q = (k, d = null) => new URLSearchParams(place.value.query).get(k) ?? d;
export const href = o => { const p = new URLSearchParams(place.value.query); for (const k in o) o[k] == null ? p.delete(k) : p.set(k, o[k]); const s = p.toString(); return place.value.path + (s ? '?' + s : ''); };
export const choose = (o, e) => { e?.preventDefault(); history.replaceState(null, '', href(o)); moved(); };
export const go = (to, replace) => { history[replace ? 'replaceState' : 'pushState'](null, '', to); moved(); scrollTo(0, 0); };

// ordinary links to other parts of the page do not load it again
addEventListener('click', e => {
  const a = e.target instanceof Element && e.target.closest('a[href]');
  if (!a || e.defaultPrevented || e.button || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey || a.target || a.origin !== location.origin || a.hash) return;
  e.preventDefault();
  go(a.pathname + a.search);
  document.getElementById('main')?.focus();
});

// A path of this page that somebody put into a link, else the list. An address of another site is not one.
export const inside = to => { try { const u = new URL(to || '/', location.origin); return u.origin === location.origin && u.pathname !== '/login' ? u.pathname + u.search : '/'; } catch { return '/'; } };
