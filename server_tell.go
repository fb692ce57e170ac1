package main

// One log line for each event, so for each change of a state: the log follows the events table like everybody else. It writes nothing.

import (
	"context"
	"log/slog"
	"time"
)

const tellEvery = 30 * time.Second // a lost bell costs this much

// tellStep logs the events that came since the last step.
func (s *server) tellStep(ctx context.Context, _ time.Time) (time.Duration, error) {
	return tellEvery, s.store.read(ctx, func(c *conn) error {
		return c.each(`SELECT e.id, e.type, e.severity, e.message, e.job_id, r.id, r.job_id, r.attempt, n.name FROM events e
			LEFT JOIN runs r ON r.id = e.run_id LEFT JOIN nodes n ON n.id = e.node_id WHERE e.id > ? ORDER BY e.id`, []any{s.told},
			func(get func(...any) error) error {
				var typ, severity, message string
				var job, run, runJob, attempt *int64
				var node *string
				if err := get(&s.told, &typ, &severity, &message, &job, &run, &runJob, &attempt, &node); err != nil {
					return err
				}
				level := slog.LevelInfo
				if severity == sevWarning || severity == sevCritical {
					level = slog.LevelWarn
				}
				attrs := []slog.Attr{slog.String(keyEvent, typ)}
				if job != nil {
					attrs = append(attrs, slog.Int64(keyJob, *job))
				}
				if run != nil {
					if label := runLabel(*run, runJob, attempt); label != "" { // an offer has no written form
						attrs = append(attrs, slog.String(keyRun, label))
					}
				}
				if node != nil {
					attrs = append(attrs, slog.String(keyNode, *node))
				}
				s.log.LogAttrs(ctx, level, message, attrs...)
				return nil
			})
	})
}
