package place

// Strategy says where among the nodes that fit a pod goes (Kant §3.3.3, §3.3.4).
type Strategy uint8

const (
	// Binpack takes the node with the fewest free GPUs that fits, in node order.
	Binpack Strategy = iota
	// EBinpack is Binpack that also keeps the pods of a job together and fills
	// leaf groups one after another, so that whole groups stay free.
	EBinpack
	// Spread takes the node with the most free GPUs, another for every pod of
	// the job where it can.
	Spread
	// ESpread spreads pods smaller than a node over the dedicated zone and
	// places the rest by EBinpack.
	ESpread
	// Consolidate is Binpack, but the last, smaller pods of a gang of several
	// tasks take the node with the most free GPUs (the rule of that name of
	// Lucid's and Helios's simulators).
	Consolidate
	// Value is EBinpack, but single pods take the node that loses the least
	// worth to the mix of requests that comes: see docs/placement.md.
	Value
	// FGD and those after it are the rules that FGD's study compares, for
	// comparison with it; see fgd.go, fgd_study.go and random.go. Gangs are placed as by Binpack.
	FGD
	BestFit
	DotProduct
	GPUPacking
	GPUClustering
	Random
	// Spot is EBinpack, but nodes with as many idle GPUs are ranked by what they host and by
	// how often LP pods were evicted from them: see [spotRank].
	Spot
	// LeastHarm is for jobs without GPUs: where they slow down the least training, see
	// harm.go. It places other jobs, and gangs, as EBinpack.
	LeastHarm
	numStrategies
)

// Strategies names the strategies in their order.
var Strategies = [numStrategies]string{"Binpack", "EBinpack", "Spread", "ESpread", "Consolidate", "Value",
	"FGD", "BestFit", "DotProduct", "GPUPacking", "GPUClustering", "Random", "Spot", "LeastHarm"}

func (s Strategy) String() string { return Strategies[s] }

// scored reports whether the strategy chooses nodes by a score.
func (s Strategy) scored() bool { return s >= Value && s < numStrategies }

// scorer returns the strategy's score.
func (p *Placer) newScorer(s Strategy) scorer {
	m := p.Mix
	switch s {
	case LeastHarm:
		return &leastHarm{p.Role, p.GPUUse}
	case FGD:
		return &fgd{mix: m, known: map[nodeState]float64{}}
	case BestFit:
		return bestFit{}
	case DotProduct:
		return dotProduct{}
	case GPUPacking:
		return gpuPacking{}
	case GPUClustering:
		return gpuClustering{}
	}
	return m
}
