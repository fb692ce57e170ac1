// Shell and components: plain functions of what they are given, and the few signals that every page shares.
import { signal, effect } from './vendor/signals-core.mjs';
import { html } from './html.mjs';
import { Icon } from './icons.mjs';
import { T } from './text.mjs';
import { link, serverNow, nudge } from './api.mjs';
import { clock, exact, ago } from './format.mjs';
import { choose, href } from './place.mjs';
export { html, Icon, T };

// the second hand: whatever shows an age reads it
export const now = signal(serverNow());
setInterval(() => { if (!document.hidden) now.value = serverNow(); }, 1000);

// light, dark, or as the system says
const read = () => { try { return localStorage.getItem('gpuctl.theme') || 'auto'; } catch { return 'auto'; } };
const theme = signal(read());
effect(() => { const t = theme.value; if (t === 'auto') document.documentElement.removeAttribute('data-theme'); else document.documentElement.setAttribute('data-theme', t); localStorage.setItem('gpuctl.theme', t); });
const nextTheme = { auto: 'light', light: 'dark', dark: 'auto' }, themeIcon = { auto: 'auto', light: 'sun', dark: 'moon' };

const toasts = signal([]);
export const toast = text => { const t = { text }; toasts.value = [...toasts.value, t]; setTimeout(() => { toasts.value = toasts.value.filter(x => x !== t); }, 6000); };
const copy = async text => {
  try { await navigator.clipboard.writeText(text); } catch { // plain HTTP has no clipboard
    const a = document.createElement('textarea'); a.value = text; document.body.append(a); a.select(); document.execCommand('copy'); a.remove();
  }
  toast(T.copied);
};

const GRACE = 5000; // a restarted server is back by then: no banner for that
const Live = () => html`<span class="live" role="status"><span class=${'dot' + (link.value.ok ? '' : ' off')}></span>${link.value.ok ? T.live : T.asOf(clock(link.value.since))}</span>`;
export const isStale = () => now.value > 0 && !link.value.ok && Date.now() - link.value.since > GRACE; // now is read first: the answer changes by time alone
const Stale = () => isStale() && html`<${Banner} act=${html`<button class="btn" onClick=${nudge}>${T.retry}</button>`}><span class="strong">${T.lost(clock(link.value.since))}</span>${T.lostNote}<//>`;

export const Shell = ({ user, onLogout, children }) => html`<a class="skip" href="#main">${T.skip}</a>
  <header class="top"><div><a class="brand" href="/"><${Icon} n="logo" />${T.product}</a>
    ${user && html`<nav class="nav" aria-label=${T.main}><a href="/" aria-current=${location.pathname === '/' ? 'page' : null}>${T.runs}</a></nav>`}
    <span class="end"></span>${user && html`<${Live} />`}
    <button class="btn ghost icon" aria-label=${T.theme(theme.value)} title=${T.theme(theme.value)} onClick=${() => { theme.value = nextTheme[theme.value]; }}><${Icon} n=${themeIcon[theme.value]} /></button>
    ${user && html`<button class="btn ghost icon" aria-label=${T.logout} title=${`${T.logout} (${user})`} onClick=${onLogout}><${Icon} n="out" /></button>`}</div></header>
  <main id="main" tabindex="-1">${user && html`<${Stale} />`}<div class=${'page' + (user && isStale() ? ' stale' : '')}>${children}</div></main>
  <div class="toasts" role="status" aria-live="polite">${toasts.value.map(t => html`<div class="toast">${t.text}</div>`)}</div>`;

// what became of a run: class gives the colour, icon the shape, and the word is always there
const over = r => r.reason === 'CANCELLED' ? ['idle', 'cancelled', 'Cancelled'] : r.exit_code === 0 && !r.signal ? ['ok', 'succeeded', 'Succeeded'] : ['bad', 'failed', 'Failed'];
const STATES = {
  OFFERED: () => ['idle', 'dispatching', 'Offered'], STARTING: () => ['idle', 'dispatching', 'Starting'], ALIVE: () => ['run', 'running', 'Running'], EXITING: () => ['warn', 'cancelling', 'Ending'],
  ENDED: over, LOST: () => ['lost', 'lost', 'Lost'], BURNED: () => ['idle', 'cancelled', 'Never ran'], IMPORTED: () => ['idle', 'imported', 'Imported'], ENDED_UNKNOWN: () => ['lost', 'lost', 'Ended, not known how'],
};
export const isOver = r => ['ENDED', 'BURNED', 'IMPORTED', 'ENDED_UNKNOWN'].includes(r.state);
export const Badge = ({ run }) => { const [c, i, word] = (STATES[run.state] || (() => ['idle', 'info', run.state]))(run); return html`<span class=${'badge ' + c}><${Icon} n=${i} />${word}</span>`; };
export const Tag = ({ c, n, children }) => html`<span class=${'badge ' + c}><${Icon} n=${n} />${children}</span>`;

// a name cut in its middle: the names of runs differ at their ends
export const Name = ({ name, to }) => {
  const k = name.length > 22 ? name.length - 11 : name.length, parts = [html`<span>${name.slice(0, k)}</span>`, k < name.length && html`<span>${name.slice(k)}</span>`];
  return to ? html`<a class="nm" href=${to} title=${name}>${parts}</a>` : html`<span class="nm" title=${name}>${parts}</span>`;
};
export const Age = ({ at }) => html`<time title=${exact(at)} datetime=${new Date(at).toISOString()}>${ago(now.value - at)}</time>`;
export const Copy = ({ text }) => html`<div class="cmd"><code>${text}</code><button type="button" class="btn ghost icon" aria-label=${T.copy(text)} onClick=${() => copy(text)}><${Icon} n="copy" /></button></div>`;
export const Sec = ({ title, n, children }) => html`<section class="sec">${title && html`<header><h2>${title} ${n != null && html`<span class="count">${n}</span>`}</h2></header>`}${children}</section>`;
export const Tabs = ({ items, cur, label }) => html`<nav class="tabs" aria-label=${label}>${items.map(([id, text, c]) => html`<a href=${href({ tab: id })} aria-current=${cur === id ? 'true' : null} onClick=${e => choose({ tab: id }, e)}>${text}${c ? html` <span class="count">${c}</span>` : ''}</a>`)}</nav>`;
export const Banner = ({ bad, children, act }) => html`<div class=${'banner' + (bad ? ' bad' : '')} role=${bad ? 'alert' : 'status'}><${Icon} n=${bad ? 'critical' : 'warning'} /><div class="grow">${children}</div>${act}</div>`;
export const Refused = ({ e, act }) => html`<${Banner} bad act=${act}><span class="strong">${e.message}</span> ${e.hint || ''}${e.request ? T.request(e.request) : ''}<//>`;
export const Empty = ({ icon, title, level = 2, children }) => html`<div class="panel"><div class="empty"><${Icon} n=${icon} /><${'h' + level}>${title}<//>${children}</div></div>`;
export const Verdict = ({ icon, c, title, children }) => html`<div class="verdict"><span class=${'c-' + c}><${Icon} n=${icon} /></span><div><h1>${title}</h1>${children}</div></div>`;
export const Loading = () => html`<div class="stack late" role="status" aria-label=${T.loading}><div class="sk w5"></div><div class="sk tall"></div><div class="sk w8"></div></div>`;
