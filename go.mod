module github.com/muster-sched/muster

go 1.26

require (
	github.com/goccy/go-yaml v1.19.2
	github.com/klauspost/compress v1.20.3
)
