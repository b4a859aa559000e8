// Package policy lists the built-in policies. Each paper's are a folder of
// their own that documents them as data.
package policy

import (
	"slices"

	"github.com/muster-sched/muster/core/policy/asi"
	"github.com/muster-sched/muster/core/policy/astraea"
	"github.com/muster-sched/muster/core/policy/classic"
	"github.com/muster-sched/muster/core/policy/doc"
	"github.com/muster-sched/muster/core/policy/drf"
	"github.com/muster-sched/muster/core/policy/fgd"
	"github.com/muster-sched/muster/core/policy/helios"
	"github.com/muster-sched/muster/core/policy/horus"
	"github.com/muster-sched/muster/core/policy/kant"
	"github.com/muster-sched/muster/core/policy/lucid"
	"github.com/muster-sched/muster/core/policy/muster"
	"github.com/muster-sched/muster/core/policy/schedmate"
	"github.com/muster-sched/muster/core/policy/sia"
	"github.com/muster-sched/muster/core/policy/themis"
	"github.com/muster-sched/muster/core/policy/tiresias"
)

// Doc is a policy with what people should know of it.
type Doc = doc.Doc

// All lists the built-in policies in the order in which help shows them.
var All = slices.Concat(muster.Docs, kant.Docs, lucid.Docs, schedmate.Docs, sia.Docs, horus.Docs, helios.Docs, tiresias.Docs, themis.Docs, classic.Docs, drf.Docs, fgd.Docs, asi.Docs, astraea.Docs)

// ByName finds a built-in policy.
func ByName(name string) (Doc, bool) {
	i := slices.IndexFunc(All, func(d Doc) bool { return d.Name == name })
	if i < 0 {
		return Doc{}, false
	}
	return All[i], true
}
