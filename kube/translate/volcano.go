package translate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/kube/keys"
)

// Volcano numbers the tiers of its network: tier 1 is the narrowest above the node.

const (
	volcanoMode = "volcano.sh/network-topology-mode"
	volcanoTier = "volcano.sh/network-topology-highest-tier"
	tierPrefix  = "tier "
)

// Tier names the level of the topology that Volcano calls the nth tier.
func Tier(n int) string { return tierPrefix + strconv.Itoa(n) }

// ParseTier reads what [Tier] returned; false for other names.
func ParseTier(name string) (n int, ok bool) {
	rest, ok := strings.CutPrefix(name, tierPrefix)
	return Number(rest), ok
}

// VolcanoTopology returns the levels that a mode, hard or soft, and a highest tier mean, empty for none. The
// error says what was expected.
func VolcanoTopology(mode, tier string) (required, preferred string, err error) {
	switch {
	case mode == "soft":
		return "", tier, nil
	case mode != "" && mode != "hard":
		return "", "", fmt.Errorf("mode %q: expected hard or soft", mode)
	case tier == "":
		return "", "", errors.New("mode hard without a highest tier: expected highestTierAllowed, or the level that the pods must not leave")
	}
	return tier, "", nil
}

// volcanoTopology reads the annotations that say the same.
func (a *Attributes) volcanoTopology(o keys.Labelled) error {
	_, mode, moded := lookup(o, only(volcanoMode))
	key, tier, tiered := lookup(o, only(volcanoTier))
	if !moded && !tiered {
		return nil
	}
	if n, err := strconv.Atoi(tier); tiered && (err != nil || n < 1) {
		return fmt.Errorf("%s: %q: expected the number of a tier, at least 1", key, tier)
	} else if tiered {
		tier = Tier(n)
	}
	required, preferred, err := VolcanoTopology(mode, tier)
	if err != nil {
		return fmt.Errorf("%s: %w", volcanoMode, err)
	}
	if a.Required == "" {
		a.Required = required
	}
	if a.Preferred == "" {
		a.Preferred = preferred
	}
	return nil
}
