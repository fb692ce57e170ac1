// Every sentence of the page, in one place.
export const T = {
  product: 'GPUPlane', skip: 'Skip to content', runs: 'Runs', theme: t => `Theme: ${t}`, logout: 'Log out', live: 'Live', main: 'Main',
  asOf: at => `as of ${at}`, copied: 'Copied', copy: what => `Copy: ${what}`, loading: 'Loading', ago: t => `${t} ago`, now: 'now',
  lost: at => `No word from the server since ${at}.`, lostNote: ' What is shown is from then. Trainings are not affected.', retry: 'Try now',
  request: id => ` Request ${id}`, unreachable: 'The server does not answer.', foreign: 'Something else than the server answered.',
  notFound: 'There is no such page', toRuns: 'To the list of runs',
  login: {
    title: 'Log in', token: 'Token', help: 'It is sent once; the page keeps a token of its own for 30 days.', button: 'Log in', busy: 'Logging in',
    link: 'Or open a link that logs in once, made on the machine of the server:', command: 'gpuctl ui', empty: 'Paste a token first.',
    scope: 'A read token sees everything and changes nothing.',
  },
  list: {
    training: n => n === 1 ? '1 run is going on' : `${n} runs are going on`, idle: 'Nothing is running', needs: n => n === 1 ? '1 thing needs you' : `${n} things need you`,
    queued: n => `${n} waiting`, nodes: n => n === 1 ? '1 machine' : `${n} machines`, next: (name, why) => why ? `next: ${name}: ${why}` : `next: ${name}`, rest: n => `${n} more wait: gpuctl job list`, caption: 'Runs, newest first',
    name: 'Name', state: 'State', id: 'Run', node: 'Machine', step: 'Last step', metric: 'Metric', best: 'Best', time: 'Duration', more: 'Show more', shown: n => `${n} shown`,
    noNode: 'No machine yet', noNodeNote: 'This prints the command that lets a machine join, with a code that works once.', noNodeCommand: 'gpuctl node join',
    none: 'No run yet', noneNote: 'Exactly the command that you type today, after the two dashes. Nothing in the script changes.',
    noneCommand: 'gpuctl go -- python3 train.py', noneCard: 'It waits for a card. Without one: ', noneCPU: 'gpuctl go -g 0 -- python3 train.py',
  },
  run: {
    id: (id, attempt) => attempt > 1 ? `run ${id}, attempt ${attempt}` : `run ${id}`, step: 'step', of: ' of ', lastStep: t => `last step ${t}`, eta: t => `about ${t} left`,
    noStep: 'no step yet', took: t => `took ${t}`, since: t => `for ${t}`, folder: 'in ', project: p => `project ${p}`, tabs: 'Run', charts: 'Charts', log: 'Log', checkpoints: 'Checkpoints',
    arriving: 'The log and the metrics are still arriving.', incomplete: 'The log is incomplete: its machine stopped sending.',
    lost: 'Its machine has not been heard of. It may well be running: LOST is not crashed.',
    offered: 'It was given to its machine, which has not started it yet.', exiting: 'Its first process has ended; others of it still run.',
    exit: code => code === 0 ? '' : `It ended with exit code ${code}.`, signal: n => `It was ended by signal ${n}.`,
    reason: {
      OOM: 'The GPU ran out of memory.', HOST_OOM: 'The machine ran out of memory.', CANCELLED: 'It was cancelled.', TIMEOUT: 'It reached its time limit.', START_FAILED: 'It could not be started.',
      DISPATCH_FAILED: 'No machine took it.', KILLED_BY_HOST: 'The machine killed it.', NODE_REBOOT: 'The machine was restarted.', SUPERVISOR_LOST: 'Its supervisor died; how it ended is not known.', FENCED: 'It was given up for a newer attempt.',
    },
  },
  charts: {
    none: 'No metric yet', noneNote: 'TensorBoard files that the run writes show here by themselves. In another folder than its own: submit with --tb.', noneOver: 'This run wrote no metrics', toLog: 'To the log',
    other: 'Metrics', first: 'primary', primary: g => g === 'min' ? 'lower is better' : g === 'max' ? 'higher is better' : '', last: 'last', best: 'best', at: 'at', min: 'min', max: 'max', step: 'step', value: 'value', mean: 'mean',
    nan: n => `${n} NaN`, inf: n => `${n} infinite`, rewinds: n => n === 1 ? 'the step went back once' : `the step went back ${n} times`, zoom: t => `Reset zoom of ${t}`,
    buckets: n => `${n} points, drawn as mean with their range`,
    sum: (name, step, value) => `${name} is ${value} at step ${step}.`,
  },
  log: {
    title: 'Log', none: 'No line yet', over: 'The log is empty', wrap: 'Wrap', follow: 'Follow', fresh: n => n === 1 ? '1 new line' : `${n} new lines`, gap: n => n === 1 ? '1 line is not shown here' : `${n} lines are not shown here`,
    full: id => `gpuctl logs --full ${id}`, last: 'last line, not finished yet', all: 'Whole log:', counted: n => n === 1 ? '1 line' : `${n.toLocaleString('en-US')} lines`,
  },
  ckpt: { caption: 'Checkpoints, newest first', step: 'Step', state: 'State', size: 'Size', found: 'Found', path: 'Path', none: 'No checkpoint yet', noneNote: 'Say where the run writes them when you submit it:', noneCommand: 'gpuctl go --watch out -- python3 train.py' },
};
