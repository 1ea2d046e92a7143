package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"path"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// billType is the media type of a bill of materials.
const billType = "application/vnd.cyclonedx+json"

// bill returns the bill of materials of a program in the format CycloneDX: the modules and the standard library that
// the toolchain noted in it. It has no time and no serial number, so the same program has the same bill.
func bill(file, version string) ([]byte, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	ours := cdx.Component{
		BOMRef: "program", Type: cdx.ComponentTypeApplication, Name: path.Base(info.Path), Version: version,
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		PackageURL: purl(info.Main.Path, version) + target(info.Settings),
	}
	library := func(module, version string) cdx.Component {
		url := purl(module, version)
		return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: module, Version: version, PackageURL: url}
	}
	parts := []cdx.Component{library("std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		// The scheduler's module takes Waterline's own by its folder.
		if !strings.HasPrefix(module.Path, ".") {
			parts = append(parts, library(module.Path, module.Version))
		}
	}
	var refs []string
	for _, p := range parts {
		refs = append(refs, p.BOMRef)
	}
	b := cdx.NewBOM()
	b.Metadata = &cdx.Metadata{Component: &ours}
	b.Components = &parts
	b.Dependencies = &[]cdx.Dependency{{Ref: ours.BOMRef, Dependencies: &refs}}
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(b); err != nil {
		return nil, fmt.Errorf("writing the bill of %s: %w", file, err)
	}
	return out.Bytes(), nil
}

// purl returns the package URL of a module's version.
func purl(module, version string) string {
	return "pkg:golang/" + module + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// target returns the qualifiers of a package URL that name the platform, such as ?goarch=arm64&goos=linux.
func target(settings []debug.BuildSetting) string {
	var parts []string
	for _, s := range settings {
		if s.Key == "GOARCH" || s.Key == "GOOS" {
			parts = append(parts, strings.ToLower(s.Key)+"="+s.Value)
		}
	}
	slices.Sort(parts)
	return "?" + strings.Join(parts, "&")
}

// attachment returns an artifact with a bill of materials that refers to an image. Its configuration's media type says
// what it is, because registries of OCI 1.0 know no other place for that.
func attachment(subject v1.Descriptor, bill []byte) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), billType)
	img, err := mutate.AppendLayers(base, static.NewLayer(bill, billType))
	if err != nil {
		return nil, fmt.Errorf("bill of materials: %w", err)
	}
	withSubject, ok := mutate.Subject(img, v1.Descriptor{
		MediaType: subject.MediaType, Size: subject.Size, Digest: subject.Digest,
	}).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("bill of materials: an image with a subject is no image")
	}
	return withSubject, nil
}
