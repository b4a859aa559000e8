// The page: reads the data that report/page.go, trace.go or experiment.go wrote into it, and shows it.

import './page.css'
import { drawn, start } from './charts.js'
import { experiment } from './experiment.js'
import { runs } from './runs.js'
import { trace } from './trace.js'

const data = JSON.parse(document.getElementById('data').textContent)
const page = document.getElementById('page')
page.append(...(data.experiment ? experiment(data.experiment) : data.trace ? trace(data.trace) : runs(data)))
start(page)
// Whoever prints or tests the page waits for this.
Promise.all(drawn).then(() => (document.documentElement.dataset.ready = 'yes'))
