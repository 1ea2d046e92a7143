package web

// reason explains a code to an operator: what it means, and what to do about it; "": nothing.
type reason struct {
	Means string `json:"means"`
	Fix   string `json:"fix"`
}

// explain adds what is known about the codes of a node to an answer.
func (s *Server) explain(codes ...string) map[string]reason {
	all := map[string]reason{}
	for _, code := range codes {
		if m, known := s.reasons[code]; known {
			all[code] = reason{m.Text, m.Fix}
		}
	}
	return all
}
