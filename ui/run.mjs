// One run: what it is, its curves, its log, its checkpoints.
import { signal, computed, effect, untracked } from './vendor/signals-core.mjs';
import { html, T, Icon, Badge, Tag, Age, Copy, Sec, Tabs, Empty, Loading, Refused, isOver, now } from './kit.mjs';
import { call, follow } from './api.mjs';
import { count, length, number, size, exact } from './format.mjs';
import { q } from './place.mjs';
import { curve, groups } from './series.mjs';
import { Chart } from './chart.mjs';
import { LogFeed, LogView, LINES } from './log.mjs';

const POINTS = 1000, FEWER = 300, MANY = 12; // points of a curve: no chart is wider; with many of them each is drawn coarser
const EACH = 3000, SELDOM = 30000, BETWEEN = 1000, PER_CURVE = 50; // ms: reading the run again, and one that is over (is the server there?); least pause between two answers with curves

const run = signal(null), curves = signal(null), feed = signal(null), ckpts = signal(null), gone = signal(null), trouble = signal(null);
const first = signal(null); // the tab that opens by itself: metrics if there are any, else the log
const tab = computed(() => { const t = q('tab'); return ['charts', 'log', 'checkpoints'].includes(t) ? t : first.value; });
const path = id => '/runs/' + encodeURIComponent(id);

const followRun = id => follow(async signal => {
  const r = await call(path(id), { signal });
  if (!first.value) first.value = (r.metrics || []).length ? 'charts' : 'log';
  run.value = r;
  return isOver(r) && r.drained ? SELDOM : EACH;
}, e => { gone.value = e; });

const numeric = v => v && { ...v, best: v.best && { ...v.best, value: number(v.best.value) }, min: v.min && { ...v.min, value: number(v.min.value) }, max: v.max && { ...v.max, value: number(v.max.value) } };
const followCurves = id => {
  let after = null;
  const known = new Map();
  return follow(async signal => {
    const wait = after === null ? 0 : 20, points = known.size > MANY ? FEWER : POINTS, p = await call(`${path(id)}/metrics?max_points=${points}${wait ? `&after=${after}&wait=${wait}` : ''}`, { signal, wait });
    if (p.next !== after) {
      const r = await call(path(id), { signal }); // its summaries: primary, best
      run.value = r;
      curves.value = p.items.map(s => {
        const key = [s.source, s.folder, s.tag].join('\n'), view = (r.metrics || []).find(m => m.source === s.source && m.folder === s.folder && m.tag === s.tag), old = known.get(key);
        const c = old && old.count === s.count ? { ...old, view, sums: numeric(view) } : { key, name: s.name, count: s.count, buckets: !!s.buckets, view, sums: numeric(view), curve: curve(s, view) };
        known.set(key, c);
        return c;
      });
    }
    after = p.next;
    return p.done ? null : BETWEEN + PER_CURVE * known.size;
  }, e => { trouble.value = e; });
};

const followLog = id => {
  const f = new LogFeed();
  let after = null;
  feed.value = f;
  return follow(async signal => {
    const wait = after === null ? 0 : 20, p = await call(`${path(id)}/log?limit=${LINES}${after === null ? '' : `&after=${after}&wait=${wait}`}`, { signal, wait });
    const before = f.done;
    f.add(p.items, p.live, p.done);
    after = p.items.length ? p.next : after ?? 0;
    if (p.done && !before) run.value = await call(path(id), { signal });
    return p.done ? null : 200;
  }, e => { trouble.value = e; });
};

const followCkpts = id => follow(async signal => {
  ckpts.value = run.value?.checkpoints ? (await call(path(id) + '/checkpoints', { signal })).items : [];
  return run.value && isOver(run.value) && run.value.drained ? null : EACH;
}, e => { trouble.value = e; });

const FOLLOW = { charts: followCurves, log: followLog, checkpoints: followCkpts };

export const open = id => {
  for (const s of [run, curves, feed, ckpts, gone, trouble, first]) s.value = null;
  const stopRun = followRun(id);
  let stop = () => {};
  const off = effect(() => { const t = tab.value; stop(); stop = t ? untracked(() => FOLLOW[t](id)) : () => {}; }); // what no tab shows is not followed
  return () => { off(); stop(); stopRun(); };
};

const because = r => {
  if (r.state === 'LOST') return T.run.lost;
  if (r.state === 'OFFERED') return T.run.offered;
  if (r.state === 'EXITING') return T.run.exiting;
  if (!isOver(r)) return r.detail || '';
  return [T.run.reason[r.reason] || (r.signal ? T.run.signal(r.signal) : r.exit_code != null ? T.run.exit(r.exit_code) : ''), r.detail].filter(Boolean).join(' ');
};
const latest = r => { // the newest of what the run and its curves say
  const l = (curves.value || []).map(c => c.view?.last).filter(Boolean).reduce((a, b) => !a || b.at_ms > a.at_ms ? b : a, null);
  return l && (r.last_step_ms == null || l.at_ms > r.last_step_ms) ? { step: l.step, at: l.at_ms } : r.last_step == null ? null : { step: r.last_step, at: r.last_step_ms };
};
const slots = r => (r.slots || []).map(s => s.lane + s.idx).join(' ');
const quote = a => /^[\w@%+=:,./-]+$/.test(a) ? a : "'" + a.replaceAll("'", "'\\''") + "'";

const Head = ({ r }) => {
  const l = latest(r), p = r.progress, why = because(r), over = isOver(r);
  return html`<div class="stack"><h1 class="brk">${r.name}</h1>
    <div class="row wrap sub meta"><${Badge} run=${r} /><span>${T.run.id(r.id, r.attempt)}</span>${r.node && html`<span>${r.node}${slots(r) && ':' + slots(r)}</span>`}
      ${l ? html`<span class="strong">${T.run.step} ${count(l.step)}${p?.total && !p.part ? T.run.of + count(p.total) : ''}</span>` : p && !p.part ? html`<span class="strong">${T.run.step} ${count(p.step)}${p.total ? T.run.of + count(p.total) : ''}</span>` : !over && html`<span>${T.run.noStep}</span>`}
      ${p?.part && html`<span>${p.part}: ${count(p.step)}${p.total ? T.run.of + count(p.total) : ''}</span>`}
      ${l?.at != null && html`<span>${T.run.lastStep('')}<${Age} at=${l.at} /></span>`}${p?.eta_ms != null && !over && html`<span>${T.run.eta(length(p.eta_ms))}</span>`}
      ${r.started_ms != null && html`<span title=${exact(r.started_ms)}>${over ? T.run.took(length((r.ended_ms ?? now.value) - r.started_ms)) : T.run.since(length(now.value - r.started_ms))}</span>`}
      ${r.experiment && html`<span class="chip">${r.experiment}</span>`}</div>
    ${why && html`<p class="sub brk">${why}</p>`}
    ${over && !r.drained && html`<p class="sub">${T.run.arriving}</p>`}${r.log.incomplete && html`<p class="sub">${T.run.incomplete}</p>`}
    ${r.argv?.length > 0 && html`<p class="sub brk"><code title=${T.run.folder + r.working_dir}>${r.argv.map(quote).join(' ')}</code></p>`}</div>`;
};

const note = c => [c.view?.primary ? T.charts.first : '', c.view?.primary || c.view?.goal ? T.charts.primary(c.view.goal) : '', c.buckets ? T.charts.buckets(count(c.count)) : '', c.view?.nan_count ? T.charts.nan(count(c.view.nan_count)) : '', c.view?.inf_count ? T.charts.inf(count(c.view.inf_count)) : '', c.view?.rewinds ? T.charts.rewinds(c.view.rewinds) : ''].filter(Boolean).join(', ');
const Charts = ({ r }) => {
  const cs = curves.value;
  if (!cs) return html`<${Loading} />`;
  if (!cs.length) return html`<${Empty} icon="runs" title=${isOver(r) ? T.charts.noneOver : T.charts.none}><p>${T.charts.noneNote}</p><a class="btn" href="?tab=log">${T.charts.toLog}</a><//>`;
  return groups(cs).map(([g, list], i, all) => html`<${Sec} key=${'g' + g} title=${g || (all.length > 1 ? T.charts.other : '')} n=${g || all.length > 1 ? list.length : null}><div class="charts">
    ${list.map(c => html`<${Chart} key=${c.key} name=${c.name} note=${note(c)} curve=${c.curve} view=${c.sums} sync=${r.uid} level=${g || all.length > 1 ? 3 : 2} />`)}</div><//>`);
};

const CKPT = { COMPLETE: ['ok', 'succeeded', 'Complete'], INCOMPLETE: ['warn', 'warning', 'Incomplete'], OVERWRITTEN: ['idle', 'cancelled', 'Overwritten'], GONE: ['idle', 'cancelled', 'Gone'] };
const Checkpoints = () => {
  const list = ckpts.value;
  if (!list) return html`<${Loading} />`;
  if (!list.length) return html`<${Empty} icon="ckpt" title=${T.ckpt.none}><p>${T.ckpt.noneNote}</p><${Copy} text=${T.ckpt.noneCommand} /><//>`;
  return html`<div class="panel"><table class="tbl"><caption class="vh">${T.ckpt.caption}</caption><thead><tr><th scope="col" class="num">${T.ckpt.step}</th><th scope="col">${T.ckpt.state}</th><th scope="col" class="wide">${T.ckpt.path}</th><th scope="col" class="num wide">${T.ckpt.size}</th><th scope="col" class="num wide">${T.ckpt.found}</th></tr></thead><tbody>
    ${list.map(c => { const [k, i, word] = CKPT[c.state] || ['idle', 'info', c.state]; return html`<tr key=${c.id}><td class="num strong">${count(c.step)}</td><td><${Tag} c=${k} n=${i}>${word}<//><div class="phone faint brk">${c.path}</div><div class="phone faint">${size(c.size_bytes)} · <${Age} at=${c.found_ms} /></div></td><td class="wide brk"><code>${c.path}</code></td><td class="num wide">${size(c.size_bytes)}</td><td class="num wide"><${Age} at=${c.found_ms} /></td></tr>`; })}</tbody></table></div>`;
};

export const view = () => {
  const r = run.value, t = tab.value;
  if (!r) return gone.value ? html`<${Refused} e=${gone.value} act=${html`<a class="btn" href="/">${T.toRuns}</a>`} />` : html`<${Loading} />`;
  return html`${gone.value && html`<${Refused} e=${gone.value} />`}<${Head} r=${r} />
    <div class="stack"><${Tabs} label=${T.run.tabs} cur=${t} items=${[['charts', T.run.charts, (r.metrics || []).length], ['log', T.run.log], ['checkpoints', T.run.checkpoints, r.checkpoints]]} />
    ${trouble.value && html`<${Refused} e=${trouble.value} />`}
    ${t === 'charts' ? html`<${Charts} r=${r} />` : t === 'log' ? feed.value && html`<${LogView} key=${r.uid} feed=${feed.value} run=${r} />` : html`<${Checkpoints} />`}</div>`;
};
export const title = () => run.value?.name;
