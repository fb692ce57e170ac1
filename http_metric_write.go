package main

// Writing curves as JSON. By hand, since encoding/json takes five times as long to look through what each point writes. All is read before
// the first byte leaves; it leaves in pieces, since it may be large. The shape is metricsPage of api.go.

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const metricWriteBytes = 256 << 10 // of one piece

// metricAnswer is a metricsPage before it is written; Items is not used.
type metricAnswer struct {
	metricsPage
	items []metricItem
}

// metricItem is one curve: its head is a metricSeries without points.
type metricItem struct {
	head  metricSeries
	curve *seriesCached
}

func writeMetrics(w http.ResponseWriter, p *metricAnswer) error {
	w.Header().Set("Content-Type", "application/json")
	rc := http.NewResponseController(w)
	b := []byte(`{"items":[`)
	send := func(least int) error {
		if len(b) < least {
			return nil
		}
		if _, err := w.Write(b); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
		b = b[:0]
		if err := rc.SetWriteDeadline(time.Now().Add(answerWithin)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return fmt.Errorf("write answer: %w", err)
		}
		return nil
	}
	for i := range p.items {
		item := &p.items[i]
		if i > 0 {
			b = append(b, ',')
		}
		head, err := json.Marshal(item.head)
		if err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
		b = append(b, head[:len(head)-1]...)
		if item.curve.kept {
			b = append(b, item.curve.rendered(renderCurve)...)
			err = send(metricWriteBytes)
		} else {
			err = eachCurvePart(item.curve.sampler, func(add func([]byte) []byte) error {
				b = add(b)
				return send(metricWriteBytes)
			})
		}
		if err != nil {
			return err
		}
		b = append(b, '}')
	}
	tail, err := json.Marshal(metricsPage{Next: p.Next, State: p.State, Done: p.Done})
	if err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	b = append(append(b, ']'), tail[len(`{"items":null`):]...)
	b = append(b, '\n')
	return send(0)
}

// renderCurve makes the field of a curve, a comma before it.
func renderCurve(s *seriesSampler) []byte {
	b := make([]byte, 0, seriesJSONBytes*s.len())
	if err := eachCurvePart(s, func(add func([]byte) []byte) error { b = add(b); return nil }); err != nil {
		return nil // nothing in it can fail
	}
	return b
}

// eachCurvePart calls part with what writes each part of ,"points":[[...],...] or ,"buckets":[[...],...]; without any point with nothing.
func eachCurvePart(s *seriesSampler, part func(add func([]byte) []byte) error) error {
	n, begin := s.points.len(), `,"points":[`
	one := func(i int, b []byte) []byte {
		return pointRow{s.points.steps[i], s.points.atMS[i], s.points.values[i]}.appendJSON(b)
	}
	if s.thinned() {
		buckets := s.buckets()
		n, begin = len(buckets), `,"buckets":[`
		one = func(i int, b []byte) []byte {
			least, most, mean := buckets[i].shown()
			return pointBucket{buckets[i].step, buckets[i].atMS, least, most, mean, buckets[i].count}.appendJSON(b)
		}
	}
	for i := range n {
		if err := part(func(b []byte) []byte {
			if i == 0 {
				b = append(b, begin...)
			} else {
				b = append(b, ',')
			}
			if b = one(i, b); i == n-1 {
				b = append(b, ']')
			}
			return b
		}); err != nil {
			return err
		}
	}
	return nil
}
