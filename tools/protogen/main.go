// Command protogen writes the Go code of a protobuf file beside it, or to another
// folder, without protoc: protocompile reads the file, and the generators of protobuf and gRPC,
// which tools/go.mod pins, write the code.
//
//	go run -C tools ./protogen ../agent/agentpb agent.proto [OUT]
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 || len(os.Args) > 4 {
		log.Fatal("usage: protogen FOLDER FILE [OUT]")
	}
	out := os.Args[1]
	if len(os.Args) == 4 {
		out = os.Args[3]
	}
	if err := generate(os.Args[1], os.Args[2], out); err != nil {
		log.Fatal(err)
	}
}

func generate(folder, name, out string) error {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{folder}}),
		SourceInfoMode: protocompile.SourceInfoStandard, // comments become those of the Go code
	}
	files, err := compiler.Compile(context.Background(), name)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: []string{name}, Parameter: proto.String("paths=source_relative")}
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() { // a generator wants imports first
			add(f.Imports().Get(i).FileDescriptor)
		}
		request.ProtoFile = append(request.ProtoFile, protoutil.ProtoFromFileDescriptor(f))
	}
	add(files[0])
	for _, generator := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := run(generator, request, out); err != nil {
			return fmt.Errorf("%s: %w", generator, err)
		}
	}
	return nil
}

// run gives a generator the file, and writes what it makes of it.
func run(generator string, request *pluginpb.CodeGeneratorRequest, out string) error {
	in, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	c := exec.Command("go", "tool", generator)
	c.Stdin, c.Stderr = bytes.NewReader(in), os.Stderr
	made, err := c.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(made, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, file := range response.File {
		if err := os.WriteFile(filepath.Join(out, file.GetName()), []byte(file.GetContent()), 0o666); err != nil {
			return err
		}
	}
	return nil
}
