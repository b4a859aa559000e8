package report

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser returns a context of a headless Chromium. The test is skipped where
// there is none.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("needs Chromium (chromium, chromium-browser or google-chrome) to open pages in")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("hide-scrollbars", true))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		chromedp.Cancel(ctx) // waits until the browser is gone, and its folder free
		cancel()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("%s does not start: %v", path, err)
	}
	return ctx
}

// patience is how long a browser may take to start, or to draw a page. It takes a second or two; a
// machine may have much else to do.
const patience = 2 * time.Minute

// A tab is a page in the browser, with what went wrong in it.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu    sync.Mutex
	wrong []string
}

// open opens a page of so many bytes at most, and waits until it is drawn.
func open(t *testing.T, browser context.Context, page []byte, width, height int64) *tab {
	t.Helper()
	if len(page) >= 5e6 {
		t.Errorf("the page has %d bytes, want less than 5 MB", len(page))
	}
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, page, 0o666); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, patience)
	t.Cleanup(cancel)
	p := &tab{t: t, ctx: ctx}
	address := (&url.URL{Scheme: "file", Path: file}).String()
	if err := chromedp.Listen(ctx, func(event any) { p.hear(event, address) }); err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.EmulateViewport(width, height), chromedp.Navigate(address), chromedp.WaitReady(chromedp.CSS(`html[data-ready]`)))
	return p
}

// hear takes in what must not happen: an error, a warning, a request for
// anything but the page.
func (p *tab) hear(event any, address string) {
	var wrong string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		wrong = "exception: " + e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			wrong += " " + x.Description
		}
	case *runtime.EventConsoleAPICalled:
		wrong = fmt.Sprintf("console.%s: %s", e.Type, e.Args[0].Value)
	case *log.EventEntryAdded:
		wrong = fmt.Sprintf("%s: %s", e.Entry.Level, e.Entry.Text)
	case *network.EventRequestWillBeSent:
		if to := e.Request.URL; to != address && !strings.HasPrefix(to, "blob:") && !strings.HasPrefix(to, "data:") {
			wrong = "request: " + to
		}
	}
	if wrong != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.wrong = append(p.wrong, wrong)
	}
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.quiet()
		p.t.Fatal(err)
	}
}

// eval returns the value of JavaScript in the page, or what it promises.
func eval[T any](p *tab, script string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		p.quiet()
		p.t.Fatal(err)
	}
	return v
}

// quiet checks that nothing went wrong in the page.
func (p *tab) quiet() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.wrong {
		p.t.Error(w)
	}
}

// scheme chooses the light or the dark colours, and waits until they are shown.
func (p *tab) scheme(name string) {
	p.t.Helper()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, media); err != nil {
		p.t.Fatal(err)
	}
	eval[bool](p, `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
}

// shoot keeps a picture of the whole page for people to look at, when
// MUSTER_SCREENSHOTS names a folder.
func (p *tab) shoot(name string) {
	dir := os.Getenv("MUSTER_SCREENSHOTS")
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o666); err != nil {
		p.t.Error(err)
	}
}

// drawnIn says of each figure in which of the page's colours for series it has
// marks that can be seen.
const drawnIn = `(() => {
	const style = getComputedStyle(document.documentElement)
	const rgb = (c) => { const e = document.createElement('i'); e.style.color = c; document.body.append(e); const r = getComputedStyle(e).color; e.remove(); return r }
	const series = Array.from({length: 8}, (_, i) => rgb(style.getPropertyValue('--c' + i)))
	const drawn = {}
	for (const figure of document.querySelectorAll('figure')) {
		const seen = new Set()
		for (const mark of figure.querySelectorAll('svg path')) {
			const s = getComputedStyle(mark), box = mark.getBBox()
			if (box.width <= 1 && box.height <= 1) continue
			for (const c of [s.stroke, s.fill]) if (series.includes(c)) seen.add(series.indexOf(c))
		}
		drawn[figure.id] = [...seen].sort()
	}
	return drawn
})()`

// overlaps lists the labels of plots that lie over each other, and elements that
// are wider than the page.
const overlaps = `(() => {
	const bad = []
	for (const figure of document.querySelectorAll('figure')) {
		const boxes = [...figure.querySelectorAll('svg text')].filter(t => t.textContent).map(t => [t.textContent, t.getBoundingClientRect()])
		boxes.forEach(([a, x], i) => boxes.slice(i + 1).forEach(([b, y]) => {
			if (x.left < y.right - 1 && y.left < x.right - 1 && x.top < y.bottom - 3 && y.top < x.bottom - 3) bad.push(figure.id + ': ' + a + ' over ' + b)
		}))
	}
	if (document.documentElement.scrollWidth > innerWidth) bad.push('the page is ' + document.documentElement.scrollWidth + ' wide in ' + innerWidth)
	return bad
})()`

// mapColours counts the pixels of the map by colour.
const mapColours = `(() => {
	const canvas = document.getElementById('map-canvas')
	const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', {willReadFrequently: true})
	copy.drawImage(canvas, 0, 0)
	const data = new Uint32Array(copy.getImageData(0, 0, canvas.width, canvas.height).data.buffer)
	const counts = {}
	for (const pixel of data) counts[pixel] = (counts[pixel] ?? 0) + 1
	return counts
})()`

// moveTo moves the slider of the map to its first or last place.
func moveTo(end string) string {
	return `(() => {
	const slider = document.getElementById('map-time')
	slider.value = slider.` + end + `
	slider.dispatchEvent(new Event('input'))
	return document.querySelector('.clock').textContent
})()`
}

// pointAtFirstNode puts the pointer on the first node of the map, and returns
// the text about it.
const pointAtFirstNode = `(() => {
	const canvas = document.getElementById('map-canvas'), box = canvas.getBoundingClientRect()
	canvas.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + 3.5, clientY: box.top + 22 + 3.5, bubbles: true}))
	const hover = document.querySelector('.hover')
	return hover.hidden ? '' : [...hover.children].map(e => e.textContent).join(' ')
})()`

// play plays the map until it has moved, stops, and returns where it is then.
const play = `new Promise(done => {
	const button = document.getElementById('map-play'), clock = document.querySelector('.clock'), from = clock.textContent
	button.click()
	const look = () => {
		if (clock.textContent === from) return requestAnimationFrame(look)
		button.click()
		done(clock.textContent)
	}
	look()
})`

// textByRun chooses each run in turn in a section, and returns its texts.
func textByRun(section string) string {
	return `(async () => {
	const section = document.getElementById('` + section + `'), map = section.querySelector('.map')
	const choose = (label) => new Promise(done => {
		label.querySelector('input').click()
		const look = () => !map || map.dataset.run === label.textContent ? done() : requestAnimationFrame(look)
		look()
	})
	const texts = [], labels = [...section.querySelectorAll('.choice label')]
	for (const label of labels) {
		await choose(label)
		texts.push(section.textContent)
	}
	await choose(labels[0])
	return texts
})()`
}
