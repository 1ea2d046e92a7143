package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/test/bed/vm"
)

func TestParse(t *testing.T) {
	o, err := parse(strings.Fields("-mem 768 -topology 2x2x1x2 -file a=/t/a -file b=/t/b -e A=1=2 -append psi=0 -o out "+
		"-- /t/a -test.v"), "", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	c := o.config
	if c.Memory != 768 || c.CPUs != 2 || c.Topology.String() != "2x2x1x2" || c.OutDir != "out" || c.Accel != "tcg" {
		t.Errorf("%+v", c)
	}
	if !slices.Equal(c.Files, []vm.File{{Host: "a", Guest: "/t/a"}, {Host: "b", Guest: "/t/b"}}) {
		t.Errorf("files %v", c.Files)
	}
	if !slices.Equal(c.Env, []string{"A=1=2"}) || !slices.Equal(c.KernelArgs, []string{"psi=0"}) {
		t.Errorf("environment %v, kernel arguments %v", c.Env, c.KernelArgs)
	}
	if len(c.Commands) != 1 || c.Commands[0].Name != "a" ||
		!slices.Equal(c.Commands[0].Argv, []string{"/t/a", "-test.v"}) {
		t.Errorf("commands %v", c.Commands)
	}
}

func TestShellCommand(t *testing.T) {
	for _, tc := range []struct{ in, name, text string }{
		{"kernel: /t/kernel.test -test.v", "kernel", "/t/kernel.test -test.v"},
		{"/t/kernel.test -test.v", "kernel.test", "/t/kernel.test -test.v"},
		{"a: cd /t &&\n./a", "a", "cd /t &&\n./a"},
		{"echo a: b", "echo", "echo a: b"},
		{"x:y", "x:y", "x:y"},
	} {
		c, err := shellCommand(tc.in)
		if err != nil || c.Name != tc.name || c.Argv[2] != tc.text {
			t.Errorf("%q: %+v, %v", tc.in, c, err)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, tc := range []struct{ args, accel, want string }{
		{"", "", "no command"},
		{"-run  ", "", "needs an argument"},
		{"-file a -- b", "", "want host=/guest"},
		{"-file a=b -- b", "", "want host=/guest"},
		{"-e =1 -- b", "", "want KEY=VALUE"},
		{"-topology 2x2 -- b", "", "want four numbers"},
		{"-mem 0 -- b", "", "more than 0"},
		{"-timeout 0s -- b", "", "more than 0"},
		{"-nope -- b", "", "not defined"},
		{"-- b", "xen", "want tcg or kvm"},
	} {
		if _, err := parse(strings.Fields(tc.args), tc.accel, io.Discard); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: error %v, want one with %q", tc.args, err, tc.want)
		}
	}
}
