// Package agentpb is the interface of the agent, made from agent.proto by make generate.
package agentpb
