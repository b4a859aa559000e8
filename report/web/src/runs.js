// The page about one run, or comparing several.

import { chip, el, legend, section, table } from './dom.js'
import { overTime } from './charts.js'
import { forecast } from './forecast.js'
import { count, duration, percent, short } from './format.js'
import { idleGPUs } from './idle.js'
import { clusterMap } from './map.js'
import { distances, waitsBySize } from './sizes.js'
import { queueUse } from './queues.js'
import { usersOf } from './users.js'
import { longestWaits } from './waits.js'

/** The parts of the page. */
export function runs(page) {
  const one = page.runs.length === 1
  const parts = [
    one ? tiles(page.runs[0].summary) : comparison(page.runs),
    overview(page),
    idleGPUs(page),
    clusterMap(page),
    waitsBySize(page),
    longestWaits(page),
    distances(page),
    queueUse(page),
    usersOf(page),
    forecast(page),
    whatWasRun(page),
  ].filter((part) => part)
  return [header(page, parts), ...parts]
}

/** The parts that the page has links to, as far as it has them. */
const links = {
  'over-time': 'Over time', idle: 'Idle GPUs', map: 'Map', waits: 'Waiting', longest: 'Longest waits', distances: 'JTTED', queues: 'Queues', users: 'Users', forecast: 'HP demand', run: 'What was run',
}

/** Whether runs are named by their policies. */
const ofPolicies = (all) => all.every((r) => r.name === r.summary.policy)

/** What was run, as far as all runs share it, in a line. */
function header(page, parts) {
  const one = page.runs.length === 1
  const title = one ? page.runs[0].name : `${page.runs.length} ${ofPolicies(page.runs) ? 'policies' : 'runs'} compared`
  const about = ({ summary: s, cluster: c }) => [
    s.workload ?? '',
    `${count(s.jobs.submitted)} jobs` + (one ? ` in ${duration(s.virtual_seconds)}` : ''),
    c < 0 ? '' : `${count(page.clusters[c].nodes)} nodes, ${count(page.clusters[c].gpus)} GPUs`,
    `seed ${s.seed}`,
  ]
  const facts = page.runs.map(about).reduce((shared, of) => shared.map((f, i) => (f === of[i] ? f : '')))
  if (page.runs.some((r) => r.summary.interrupted)) facts.push('interrupted')
  return el('header', {},
    el('h1', {}, title),
    el('p', { class: 'dim' }, facts.filter(Boolean).join(' · ')),
    el('nav', { 'aria-label': 'Parts of the page' }, parts.filter((p) => links[p.id]).map((p) => el('a', { href: '#' + p.id }, links[p.id]))))
}

/** The headline figures of a run. */
function tiles(s) {
  const tile = (name, value, note) => el('div', { class: 'tile' }, el('span', {}, name), el('b', {}, value), el('span', { class: 'dim' }, note))
  return el('div', { class: 'tiles', id: 'headline' },
    tile('GPUs allocated (GAR)', percent(s.gar.mean), `median ${percent(s.gar.p50)}`),
    tile('GPU-hours allocated (SOR)', percent(s.sor), 'of those available'),
    tile('Nodes fragmented (GFR)', percent(s.gfr.mean), `p95 ${percent(s.gfr.p95)}`),
    tile('Waiting', duration(s.queueing.mean_s), `p50 ${duration(s.queueing.p50_s)}, p99 ${duration(s.queueing.p99_s)}`),
    tile('Submission to end (JCT)', duration(s.jct.mean_s), `p50 ${duration(s.jct.p50_s)}, p99 ${duration(s.jct.p99_s)}`),
    tile('Jobs completed', count(s.jobs.completed), `${count(s.jobs.running)} run, ${count(s.jobs.pending)} wait`),
    tile('Preemptions', count(s.preemptions), `${count(s.migrations)} migrations`),
    tile('GPU-hours lost', short(s.lost_gpu_hours), 'by evictions and failures'),
    s.fairness ? tile('GPU time that queues lack', percent(s.fairness.tenants.unfairness), `of what they deserved; jobs ${percent(s.fairness.jobs.unfairness)}` + (s.fairness.users ? `, users ${percent(s.fairness.users.unfairness)}` : '')) : null)
}

/** What the runs are compared by: a name, the figure, its text, +1 where more is better, -1 where less is, and whether a run has it. */
const allMeasures = [
  ['GAR', (s) => s.gar.mean, percent, 1],
  ['SOR', (s) => s.sor, percent, 1],
  ['GFR', (s) => s.gfr.mean, percent, -1],
  ['wait, mean', (s) => s.queueing.mean_s, duration, -1],
  ['p50', (s) => s.queueing.p50_s, duration, -1],
  ['p99', (s) => s.queueing.p99_s, duration, -1],
  ['JCT, mean', (s) => s.jct.mean_s, duration, -1],
  ['preemptions', (s) => s.preemptions, count, 0],
  ['GPU-h lost', (s) => s.lost_gpu_hours, short, -1],
  ['queues lack', (s) => s.fairness?.tenants.unfairness ?? 0, percent, -1],
  ['jobs lack', (s) => s.fairness?.jobs.unfairness ?? 0, percent, -1],
  ['users lack', (s) => s.fairness?.users?.unfairness ?? 0, percent, -1, (s) => s.fairness?.users],
  ['completed', (s) => s.jobs.completed, count, 1],
  ['decisions/s', (s) => s.decisions_per_second, short, 0],
]

function comparison(all) {
  // Of different jobs or clusters, none is better.
  const alike = all.every((r) => r.summary.workload === all[0].summary.workload && r.cluster === all[0].cluster)
  const measures = allMeasures.filter(([, , , , has]) => !has || all.some((r) => has(r.summary)))
  const best = measures.map(([, figure, text, better]) => {
    const texts = all.map((r) => text(figure(r.summary)))
    const figures = all.map((r) => better * figure(r.summary))
    // Where all look the same, none is best; what looks like the best is too.
    return alike && better && new Set(texts).size > 1 ? texts[figures.indexOf(Math.max(...figures))] : null
  })
  const rows = all.map((r, i) => [
    el('span', {}, chip(i), r.name),
    ...measures.map(([, figure, text], m) => ({ text: text(figure(r.summary)), class: text(figure(r.summary)) === best[m] ? 'best' : null })),
  ])
  return section('headline', 'Compared', table('The runs compared', [ofPolicies(all) ? 'policy' : 'run', ...measures.map((m) => m[0])], rows),
    el('p', { class: 'dim' }, (alike ? 'The best of a column is in bold. ' : '') + 'GAR, SOR and GFR are averages over time; waiting is all waiting of a job, also after evictions.'))
}

/** The plots over time that all runs share. */
function overview(page) {
  const series = (key) => page.runs.map((r, i) => ({ name: r.name, colour: i, t: r.series.t ?? [], y: r.series[key] ?? [] }))
  const window = page.runs[0].summary.window
  const length = page.runs[0].series.t?.at(-1) ?? 0
  // Where the averages do not go over all of the run, it is said from where to where.
  const marks = [window.from_s, window.to_s].filter((t) => t > length * 0.005 && t < length * 0.995).map((t) => ({ xAxis: t }))
  const ratio = { text: (v) => +(v * 100).toPrecision(3) + '%', tipText: percent, marks: marks.length ? marks : null }
  const jobs = { text: short, most: 4 }
  return section('over-time', 'Over time',
    page.runs.length > 1 ? legend(page.runs.map((r) => r.name)) : null,
    el('div', { class: 'grid' },
      overTime({ id: 'gar', title: 'GPUs allocated (GAR)', series: series('gar'), most: 1, ...ratio }),
      overTime({ id: 'gfr', title: 'Nodes fragmented (GFR)', series: series('gfr'), ...ratio }),
      overTime({ id: 'pending', title: 'Jobs waiting', series: series('pending'), ...jobs }),
      overTime({ id: 'running', title: 'Jobs running', series: series('running'), ...jobs })),
    marks.length ? el('p', { class: 'dim' }, 'The dashed lines bound the time over which GAR, SOR and GFR are averaged.') : null)
}

/** What was run, in full. */
function whatWasRun(page) {
  const row = (name, tell) => [name, ...page.runs.map((r) => tell(r.summary, r))]
  const rows = [
    row('Policy', (s) => s.policy),
    row('Workload', (s) => s.workload ?? ''),
    row('Cluster', (s) => s.cluster ?? ''),
    row('Nodes and GPUs', (s, r) => (r.cluster < 0 ? '' : `${count(page.clusters[r.cluster].nodes)} with ${count(page.clusters[r.cluster].gpus)} GPUs`)),
    row('Seed', (s) => String(s.seed)),
    row('Jobs submitted', (s) => count(s.jobs.submitted)),
    row('completed, failed, cancelled', (s) => [s.jobs.completed, s.jobs.failed, s.jobs.cancelled].map(count).join(', ')),
    row('running, waiting, rejected', (s) => [s.jobs.running, s.jobs.pending, s.jobs.rejected].map(count).join(', ')),
    row('Virtual time', (s) => duration(s.virtual_seconds) + (s.interrupted ? ', interrupted' : '')),
    row('Averages over', (s) => `${duration(s.window.from_s)} to ${duration(s.window.to_s)}: ${s.window.is}`),
    row('Makespan', (s) => duration(s.makespan_s)),
    row('Decisions', (s) => `${count(s.decisions)} in ${duration(s.wall_seconds)}: ${short(s.decisions_per_second)} a second`),
    row('Memory', (s) => short(s.peak_rss_mib) + ' MiB'),
    row('SHA-256 of the decisions', (s) => el('code', {}, s.decision_sha256)),
  ]
  return section('run', 'What was run', table('What was run', ['', ...page.runs.map((r) => r.name)], rows))
}

