package pattern

// Choose picks for each pattern the Need by which a Set should look for it: the one
// whose texts the fewest of the others have too, and among those the longest. nil
// is for a pattern that is Free.
func Choose(patterns []*Pattern) []Need {
	shared := map[string]int{}
	for _, p := range patterns {
		for _, n := range p.needs {
			for _, text := range n {
				shared[text]++
			}
		}
	}
	chosen := make([]Need, len(patterns))
	for i, p := range patterns {
		fewest := 0
		for _, n := range p.needs {
			others := 0
			for _, text := range n {
				others += shared[text]
			}
			if best := chosen[i]; best == nil || others < fewest || others == fewest && n.shortest() > best.shortest() {
				chosen[i], fewest = n, others
			}
		}
	}
	return chosen
}
