package web

// reason is what people are told about a code: what it means, and what to do; "": nothing.
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
