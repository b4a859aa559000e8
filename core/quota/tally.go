package quota

import "slices"

// tally is how much of each account something takes: of a model or resource. There are few of them, so
// that to look at each name costs less than a map.
type tally []amount

type amount struct {
	account string
	Milli
}

// of returns the amount of an account.
func (t tally) of(account string) Milli {
	for i := range t {
		if t[i].account == account {
			return t[i].Milli
		}
	}
	return 0
}

// add adds to the amount of an account.
func (t *tally) add(account string, by Milli) {
	for i := range *t {
		if a := &(*t)[i]; a.account == account {
			a.Milli += by
			return
		}
	}
	*t = append(*t, amount{account, by})
}

// forget drops an account.
func (t *tally) forget(account string) {
	*t = slices.DeleteFunc(*t, func(a amount) bool { return a.account == account })
}
