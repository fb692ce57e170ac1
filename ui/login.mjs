// Logging in: a token typed once, or the code of a one-time link. Both are exchanged for a token of the page's own.
import { signal } from './vendor/signals-core.mjs';
import { html, T, Copy, Refused, Banner } from './kit.mjs';
import { call, keep, session, Refusal } from './api.mjs';
import { go, inside, q } from './place.mjs';

const busy = signal(false), trouble = signal(null), empty = signal(false);

const enter = async body => {
  const old = session.value?.token, to = inside(q('next'));
  busy.value = true; trouble.value = null; empty.value = false;
  try {
    keep(await call('/login', { method: 'POST', body, token: null }));
    if (old) await call('/logout', { method: 'POST', token: old }).catch(() => {}); // it expires by itself
    go(to, true);
  } catch (e) { trouble.value = e; } finally { busy.value = false; }
};

// The code leaves the address at once: it shall not lie in the history. It works once anyway.
export const open = () => {
  trouble.value = null;
  const code = new URLSearchParams(location.hash.slice(1)).get('code');
  if (code) { history.replaceState(null, '', location.pathname + location.search); enter({ code }); }
  else if (session.value) { const to = inside(q('next')); queueMicrotask(() => go(to, true)); } // logged in already, or in another tab
  return () => {};
};

const submit = e => {
  e.preventDefault();
  const field = e.target.elements.token, token = field.value.trim();
  if (!token) { empty.value = true; field.focus(); return; }
  enter({ token });
};

export const logout = async () => {
  const token = session.value?.token;
  keep(null);
  go('/login', true);
  if (token) try { await call('/logout', { method: 'POST', token }); } catch (e) { trouble.value = e; }
};

export const view = () => {
  const t = trouble.value;
  return html`<form class="panel pad stack narrow" aria-labelledby="lt" onSubmit=${submit}>
    <h1 id="lt">${T.login.title}</h1>
    ${t && (t instanceof Refusal ? html`<${Refused} e=${t} />` : html`<${Banner} bad>${t.message}<//>`)}
    <div class=${'field' + (empty.value ? ' err' : '')}><label for="token">${T.login.token}</label>
      <input name="username" autocomplete="username" value="gpuctl" hidden />
      <input class="in mono" id="token" name="token" type="password" autocomplete="current-password" autocapitalize="off" spellcheck="false" aria-describedby="token-h" />
      <div class="help" id="token-h">${empty.value ? T.login.empty : T.login.help}</div></div>
    <button class="btn pri" disabled=${busy.value}>${busy.value ? T.login.busy : T.login.button}</button>
    <p class="sub">${T.login.scope}</p>
    <p class="sub">${T.login.link}</p><${Copy} text=${T.login.command} /></form>`;
};
