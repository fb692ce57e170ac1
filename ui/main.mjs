// Entry: which page an address is, opening and closing it, drawing.
import { render } from './vendor/preact.mjs';
import { signal, computed, effect, untracked } from './vendor/signals-core.mjs';
import { html, T, Shell, Empty } from './kit.mjs';
import { session } from './api.mjs';
import { place, go } from './place.mjs';
import * as login from './login.mjs';
import * as runs from './runs.mjs';
import * as run from './run.mjs';

const missing = { open: () => () => {}, view: () => html`<${Empty} icon="info" title=${T.notFound} level=${1}><a class="btn" href="/">${T.toRuns}</a><//>` };
const part = text => { try { return decodeURIComponent(text); } catch { return text; } };
const pick = path => {
  if (path === '/') return { page: runs, name: T.runs };
  if (path === '/login') return { page: login, name: T.login.title };
  const m = /^\/runs\/([^/]+)$/.exec(path);
  return m ? { page: run, arg: part(m[1]), name: part(m[1]) } : { page: missing, name: T.notFound };
};

const path = computed(() => place.value.path), loggedIn = computed(() => !!session.value);
const wide = computed(() => path.value === '/' ? runs.key() : ''); // the list is read anew when it shall be longer
const shown = signal(null);
let close = () => {};
effect(() => {
  const at = path.value, known = loggedIn.value;
  wide.value;
  untracked(() => {
    close();
    close = () => {};
    if (!known && at !== '/login') { // keep where somebody wanted to go
      const next = location.pathname + location.search;
      queueMicrotask(() => go('/login' + (next === '/' ? '' : '?next=' + encodeURIComponent(next)), true));
      shown.value = null;
      return;
    }
    const p = pick(at);
    close = p.page.open(p.arg);
    shown.value = p;
  });
});

effect(() => {
  const p = shown.value;
  document.title = ((p?.page.title?.() || p?.name) ?? T.login.title) + ' - ' + T.product;
  const user = path.value === '/login' ? null : session.value?.name;
  render(html`<${Shell} user=${user} onLogout=${login.logout}>${p && html`<${p.page.view} />`}<//>`, document.getElementById('app'));
});
