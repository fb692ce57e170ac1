package tests

// The curves of the page: what is drawn is what the API says, and it moves when the training writes.

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tbTraining is a training in Python without any package: it writes TensorBoard scalars. It goes on to the step that stands in the file
// "until" of its folder, until there is a file "end". Every value is a float32, as TensorBoard's are.
const tbTraining = `import math, os, random, struct, time
table = []
for n in range(256):
    for _ in range(8):
        n = (n >> 1) ^ 0x82F63B78 if n & 1 else n >> 1
    table.append(n)
def masked(data):
    c = 0xFFFFFFFF
    for b in data:
        c = table[(c ^ b) & 255] ^ (c >> 8)
    c ^= 0xFFFFFFFF
    return struct.pack("<I", ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF)
def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])
def field(no, data):
    return varint(no << 3 | 2) + varint(len(data)) + data
def record(data):
    head = struct.pack("<Q", len(data))
    return head + masked(head) + data + masked(data)
def event(step, body):
    return record(b"\x09" + struct.pack("<d", time.time()) + b"\x10" + varint(step) + body)
def scalar(step, tag, value):
    return event(step, field(5, field(1, field(1, tag.encode()) + b"\x15" + struct.pack("<f", value))))
os.makedirs("runs", exist_ok=True)
random.seed(7)
out = open("runs/events.out.tfevents.%d.host.%d.0" % (time.time(), os.getpid()), "ab", buffering=0)
out.write(event(0, field(3, b"brain.Event:2")))
step = 0
while not os.path.exists("end"):
    until = int(open("until").read() or 0)
    while step < until:
        step += 1
        s, noise = step * 6, random.gauss(0, 1)
        loss = 0.31 + 2.0 * math.exp(-s / 700) + 0.05 * noise * (0.3 + math.exp(-s / 900))
        data = scalar(s, "train/loss", loss) + scalar(s, "train/accuracy", 0.94 - 0.8 * math.exp(-s / 800) + 0.008 * noise)
        data += scalar(s, "lr", 3e-4 * min(1, s / 300) * (0.5 + 0.5 * math.cos(min(1, s / 4000) * math.pi)))
        if step % 10 == 0:
            data += scalar(s, "val/loss", 0.38 + 1.9 * math.exp(-s / 720) + 0.008 * noise)
            data += scalar(s, "val/accuracy", 0.93 - 0.8 * math.exp(-s / 820) + 0.004 * noise)
            data += scalar(s, "odd [top-1] <img src=x onerror=alert(1)>", float("nan") if step == 20 else s / 7)
            print("step %d loss %.4f" % (s, loss), flush=True)
        out.write(data)
    time.sleep(0.02)
`

// metricShape is a curve as the API gives it.
type metricShape struct {
	Name   string  `json:"name"`
	Count  int     `json:"count"`
	Points [][]any `json:"points"`
}

// curves reads all points of a run, by name.
func (p *plane) curves(run string) map[string]metricShape {
	p.t.Helper()
	var page struct {
		Items []metricShape `json:"items"`
	}
	if status, err := p.get("/api/v1/runs/"+run+"/metrics", &page); err != nil || status != 200 {
		p.t.Fatalf("metrics of %s: status %d, %v", run, status, err)
	}
	all := map[string]metricShape{}
	for _, s := range page.Items {
		all[s.Name] = s
	}
	return all
}

// last is the newest point of a curve, as the API writes it.
func (m metricShape) last() (step, value float64) {
	if len(m.Points) == 0 {
		return -1, math.NaN()
	}
	p := m.Points[len(m.Points)-1]
	step, _ = p[0].(float64)
	value, ok := p[2].(float64)
	if !ok {
		value = math.NaN()
	}
	return step, value
}

// drawn is what a chart has drawn last, and what it says.
type drawn struct {
	Points, Step, Drawn, Said, Pixels string
}

// chart reads the chart of a metric: what its canvas was given when it drew last, what its line says, and a sum over its picture.
func (b *browser) chart(name string) drawn {
	b.t.Helper()
	var d drawn
	script := `(name => {
		const f = [...document.querySelectorAll('figure')].find(f => f.getAttribute('aria-label') === name), p = f?.querySelector('.plot'), c = p?.querySelector('canvas');
		f?.scrollIntoView({block: 'center'}); // what is far from the window is not drawn yet
		if (!c) return {};
		let sum = 0;
		for (const k of c.toDataURL()) sum = (sum * 31 + k.charCodeAt(0)) % 4294967296;
		return {points: p.dataset.points, step: p.dataset.step, drawn: p.dataset.drawn, said: f.querySelector('data.of-last')?.value, pixels: String(sum)};
	})(` + jsString(name) + `)`
	if err := b.tryEval(script, &d); err != nil {
		b.t.Fatal(err)
	}
	return d
}

// same checks a chart against the API: the last value that was drawn, the one that is said, and how many points there are.
func (b *browser) same(p *plane, run, name string) {
	b.t.Helper()
	var got, want drawn
	defer func() {
		if b.t.Failed() {
			b.t.Logf("%s: drawn %+v, the API has %+v", name, got, want)
		}
	}()
	waitFor(b.t, 10*time.Second, name+" is drawn as the API has it", func() bool {
		m := p.curves(run)[name]
		step, value := m.last()
		want = drawn{Points: strconv.Itoa(len(m.Points)), Step: jsNumber(step), Drawn: jsNumber(value), Said: jsNumber(value)}
		got = b.chart(name)
		got.Pixels = ""
		return len(m.Points) > 0 && got == want
	})
}

// jsNumber writes a number as JavaScript does.
func jsNumber(v float64) string {
	if math.IsNaN(v) {
		return "NaN"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

const hostileTag = "odd [top-1] " + hostile

// until lets the training go on to a step of its own count; the steps it writes are six times that.
func (p *plane) until(n int) {
	p.t.Helper()
	tmp := p.write(filepath.Join(p.work, "until.tmp"), strconv.Itoa(n))
	if err := os.Rename(tmp, filepath.Join(p.work, "until")); err != nil {
		p.t.Fatal(err)
	}
}

func TestPageCharts(t *testing.T) {
	o := promise(t, "the page: the last drawn value of every curve is the API's, a new point moves it within 5 s, the console stays empty")
	b := pageBrowser(t, o)
	p := newPlane(t)
	p.write(filepath.Join(p.home, "agent.yaml"), "name: lab1\n")
	p.up("--fake-gpus", p.fakeGPUs(1))
	p.write(filepath.Join(p.work, "train.py"), tbTraining)
	p.until(60)
	p.submit("-g", "1", "-n", "mae-vit-base-lr3e-4-bs512-seed3", "--primary", "val/loss:min", "--total-steps", "6000", "--", "python3", "train.py", "--lr", "3e-4")
	b.open(p.loginLink())
	b.waitText(20*time.Second, ".tbl tbody", "seed3")
	b.click(".tbl tbody a")
	b.waitText(10*time.Second, "h1", "mae-vit-base-lr3e-4-bs512-seed3")
	b.click(`.tabs a[href*="tab=charts"]`)
	names := []string{"train/loss", "train/accuracy", "lr", "val/loss", "val/accuracy", hostileTag}
	for _, name := range names {
		b.same(p, "1.1", name)
	}
	if b.count("img") != 0 || !strings.Contains(b.text(".page"), "1 NaN") {
		t.Error("the name of a metric became an image, or its NaN is not told")
	}
	b.everySize("the charts")
	b.screen(1440, 900, "light")
	b.same(p, "1.1", "train/loss")

	before, began := b.chart("train/loss"), time.Now()
	p.until(61)
	waitFor(t, 5*time.Second, "the new point moves the curve", func() bool {
		now := b.chart("train/loss")
		return now.Step == "366" && now.Pixels != before.Pixels
	})
	o.Figure = fmt.Sprintf("%.1f s from the write to the picture", time.Since(began).Seconds())
	b.same(p, "1.1", "train/loss")
	b.waitText(5*time.Second, ".meta", "step 366 of 6,000")

	p.until(420)
	waitFor(t, 10*time.Second, "the longer curve", func() bool { return b.chart("train/loss").Step == "2520" })
	b.same(p, "1.1", "train/loss")
	b.screen(1280, 960, "light")
	b.same(p, "1.1", "val/loss")
	b.eval("scrollTo(0, 0)", nil)
	checkPicture(t, b)

	p.until(1500) // more than a chart has room for: the API gives buckets
	waitFor(t, 15*time.Second, "the long curve ends where the API's does", func() bool {
		step, value := p.curves("1.1")["train/loss"].last()
		got := b.chart("train/loss")
		points, err := strconv.Atoi(got.Points)
		return err == nil && points > 500 && points <= 1001 && step == 9000 && got.Step == "9000" && got.Drawn == jsNumber(value) && got.Said == jsNumber(value)
	})
	b.click(`.tabs a[href*="tab=log"]`)
	b.waitText(10*time.Second, ".logbody", "step 9000 loss")
	p.touch("end")
	b.waitText(10*time.Second, ".meta", "Succeeded")
	b.quiet()
}

const pagePicture = "../docs/run-page.png"

// checkPicture takes the README's picture of the page with UPDATE=1; else it looks that there is one.
func checkPicture(t *testing.T, b *browser) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(pagePicture, b.picture(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	st, err := os.Stat(pagePicture)
	if err != nil || st.Size() > 200_000 || st.Size() < 20_000 {
		t.Errorf("the picture of the page: %v, %v; UPDATE=1 makes it", st, err)
	}
}
