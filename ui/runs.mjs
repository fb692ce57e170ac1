// The list of runs: is it alive, is the loss sane.
import { signal } from './vendor/signals-core.mjs';
import { html, T, Icon, Badge, Name, Age, Copy, Sec, Empty, Verdict, Loading, Refused, isOver, now } from './kit.mjs';
import { call, follow } from './api.mjs';
import { count, value, number, length } from './format.mjs';
import { q, href, choose } from './place.mjs';

const data = signal(null), trouble = signal(null);
const PAGE = 50, MOST = 500; // MOST: what the API gives at once
const wanted = () => Math.min(MOST, Math.max(PAGE, +q('n', PAGE) || PAGE));

// One request waits at a time: the list is read again after any event, and every few seconds while something runs.
export const open = () => {
  let after = null;
  return follow(async signal => {
    if (after === null) after = (await call('/events?limit=1', { signal })).items[0]?.id ?? 0;
    const [runs, status] = await Promise.all([call('/runs?limit=' + wanted(), { signal }), call('/status', { signal })]);
    data.value = { runs: runs.items, more: runs.next != null, status };
    const wait = runs.items.some(r => !isOver(r)) ? 5 : 20;
    for (const e of (await call(`/events?after=${after}&limit=500&wait=${wait}`, { signal, wait })).items) after = e.id;
    return 500;
  }, e => { trouble.value = e; });
};
export const key = () => 'n' + wanted();

const metricOf = r => (r.metrics || []).find(m => m.primary) || (r.metrics || []).find(m => m.goal) || (r.metrics || [])[0];
const Metric = ({ m }) => m?.last ? html`<span class="faint">${m.name}</span> <span class="strong">${value(number(m.last.value))}</span>${m.best && html` <span class="faint">${T.list.best.toLowerCase()} ${value(number(m.best.value))}</span>`}` : '-';
const took = r => r.started_ms == null ? '-' : length((r.ended_ms ?? now.value) - r.started_ms);
const Step = ({ r }) => r.last_step == null ? '-' : html`${count(r.last_step)}${r.progress?.total && !r.progress.part ? html`<span class="faint">${T.run.of}${count(r.progress.total)}</span>` : ''}${r.last_step_ms != null && html` <span class="faint"><${Age} at=${r.last_step_ms} /></span>`}`;

const Row = ({ r }) => html`<tr>
  <td class="nmcell"><${Name} name=${r.name} to=${'/runs/' + r.id} />
    <div class="phone sub row wrap"><${Badge} run=${r} /><span>${r.id}</span><span>${r.node || '-'}</span><span>${took(r)}</span></div>
    ${r.last_step != null && html`<div class="phone sub">${T.run.step} <${Step} r=${r} /></div>`}
    ${metricOf(r) && html`<div class="phone sub"><${Metric} m=${metricOf(r)} /></div>`}</td>
  <td class="wide"><${Badge} run=${r} /></td><td class="num wide faint">${r.id}</td><td class="wide">${r.node || '-'}</td>
  <td class="num wide"><${Step} r=${r} /></td><td class="wide"><${Metric} m=${metricOf(r)} /></td><td class="num wide">${took(r)}</td></tr>`;

const Queue = ({ jobs, n }) => html`<details class="panel queue"><summary><span class="strong">${T.list.queued(n)}</span> <span class="sub">${T.list.next(jobs[0].name, jobs[0].wait_reason)}</span></summary>
  <ol class="rows">${jobs.map(j => html`<li key=${j.id}><div class="row"><span class="faint">${j.id}</span><div class="grow"><${Name} name=${j.name} /></div></div><div class="sub brk">${j.wait_reason}</div></li>`)}</ol>
  ${n > jobs.length && html`<p class="pad sub">${T.list.rest(n - jobs.length)}</p>`}</details>`;

const Head = ({ runs, status }) => {
  const on = runs.filter(r => !isOver(r)).length, need = status.needs_you, facts = [need?.length && on && T.list.training(on), status.jobs?.QUEUED && T.list.queued(status.jobs.QUEUED), status.nodes?.length && T.list.nodes(status.nodes.length)].filter(Boolean).join(', ');
  if (need?.length) return html`<${Verdict} icon="warning" c="warn" title=${T.list.needs(need.length)}><ul class="needs">${need.map(x => html`<li>${x}</li>`)}</ul><p>${facts}</p><//>`;
  return html`<${Verdict} icon=${on ? 'running' : 'info'} c=${on ? 'run' : 'idle'} title=${on ? T.list.training(on) : T.list.idle}><p>${facts}</p><//>`;
};

export const view = () => {
  const d = data.value, bad = trouble.value && html`<${Refused} e=${trouble.value} />`;
  if (!d) return bad || html`<${Loading} />`;
  const queued = d.status.queued || [];
  if (!d.status.nodes?.length && !d.runs.length) return html`${bad}<${Head} ...${d} /><${Empty} icon="runs" title=${T.list.noNode}><p>${T.list.noNodeNote}</p><${Copy} text=${T.list.noNodeCommand} /><//>`;
  if (!d.runs.length && !queued.length) return html`${bad}<${Head} ...${d} /><${Empty} icon="runs" title=${T.list.none}><p>${T.list.noneNote}</p><${Copy} text=${T.list.noneCommand} /><p>${T.list.noneCard}</p><${Copy} text=${T.list.noneCPU} /><//>`;
  return html`${bad}<${Head} ...${d} />
    ${queued.length > 0 && html`<${Queue} jobs=${queued} n=${d.status.jobs?.QUEUED} />`}
    ${d.runs.length > 0 && html`<${Sec} title=${T.runs} n=${d.more ? T.list.shown(d.runs.length) : d.runs.length}><div class="panel"><table class="tbl"><caption class="vh">${T.list.caption}</caption>
      <thead><tr><th scope="col">${T.list.name}</th><th scope="col" class="wide">${T.list.state}</th><th scope="col" class="num wide">${T.list.id}</th><th scope="col" class="wide">${T.list.node}</th><th scope="col" class="num wide">${T.list.step}</th><th scope="col" class="wide">${T.list.metric}</th><th scope="col" class="num wide">${T.list.time}</th></tr></thead>
      <tbody>${d.runs.map(r => html`<${Row} key=${r.uid} r=${r} />`)}</tbody></table></div>
      ${d.more && d.runs.length < MOST && html`<p class="gap"><a class="btn" href=${href({ n: Math.min(MOST, wanted() * 2) })} onClick=${e => choose({ n: Math.min(MOST, wanted() * 2) }, e)}><${Icon} n="down" />${T.list.more}</a></p>`}<//>`}`;
};
