package llm

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// Chat is a conversation that a model is to go on with.
type Chat struct {
	Messages []Message
	Tools    []Tool
	// Schema is the JSON schema of the answer, nil for text. A server that cannot keep to a schema is asked for any JSON
	// object, and one that cannot do that for text: the answer has to be checked either way.
	Schema json.RawMessage
	Tokens int // of the answer at most: 2048
}

// Message is a part of a conversation.
type Message struct {
	Role    Role
	Content string
	Calls   []Call // of the assistant
	CallID  string // of the call that a message of a tool answers
}

// Role is whose a message is.
type Role string

// Roles.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	ToolRole  Role = "tool"
)

// Tool is a function that the model may ask for.
type Tool struct {
	Name, Description string
	Parameters        json.RawMessage // a JSON schema
}

// Call is a model's request to run a tool.
type Call struct {
	ID, Name  string
	Arguments string // JSON, if the model wrote it well
}

// form is how a server is asked for an answer by schema.
type form int32

const (
	bySchema form = iota
	anyObject
	plainText
)

// Chat returns the model's next message. It has content or calls.
func (c *Client) Chat(ctx context.Context, chat Chat) (Message, error) {
	if chat.Schema == nil {
		return c.chat(ctx, chat, plainText)
	}
	var first error
	for f := form(c.form.Load()); f <= plainText; f++ {
		m, err := c.chat(ctx, chat, f)
		if err == nil {
			c.form.Store(int32(f))
			return m, nil
		}
		if first == nil {
			first = err
		}
		if !unsupported(err) {
			return m, err
		}
	}
	return Message{}, first
}

// unsupported says whether a server may have refused a request for a feature that it does not have.
func unsupported(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == Refused && slices.Contains([]int{
		http.StatusBadRequest, http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusNotImplemented,
	}, e.Status)
}

// RefusesTools says whether an error of [Client.Chat] may be due to the tools of the conversation, so that it is worth
// trying without them.
func RefusesTools(err error) bool { return unsupported(err) }

// The protocol's own form.
type (
	wireCall struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string   `json:"name"`
			Arguments wireText `json:"arguments"`
		} `json:"function"`
	}
	wireMessage struct {
		Role    string     `json:"role"`
		Content wireText   `json:"content"`
		Calls   []wireCall `json:"tool_calls,omitempty"`
		CallID  string     `json:"tool_call_id,omitempty"`
	}
	wireChat struct {
		Model       string           `json:"model"`
		Messages    []wireMessage    `json:"messages"`
		Tools       []map[string]any `json:"tools,omitempty"`
		Format      any              `json:"response_format,omitempty"`
		Tokens      int              `json:"max_tokens"`
		Temperature float64          `json:"temperature"` // 0: the likeliest answer
	}
	wireAnswer struct {
		Choices []struct {
			Message wireMessage `json:"message"`
			Finish  string      `json:"finish_reason"`
		} `json:"choices"`
	}
)

// wireText is a text. Some servers answer with null, with a list of parts, or with the object that the text should hold.
type wireText string

func (t *wireText) UnmarshalJSON(data []byte) error {
	var parts []struct {
		Text string `json:"text"`
	}
	switch data[0] {
	case 'n':
		*t = ""
		return nil
	case '"':
		return json.Unmarshal(data, (*string)(t))
	case '{':
		*t = wireText(data)
		return nil
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		*t += wireText(p.Text)
	}
	return nil
}

func (c *Client) chat(ctx context.Context, chat Chat, f form) (Message, error) {
	request := wireChat{Model: c.at.Model, Tokens: chat.Tokens}
	if request.Tokens == 0 {
		request.Tokens = 2048
	}
	for _, m := range chat.Messages {
		w := wireMessage{Role: string(m.Role), Content: wireText(m.Content), CallID: m.CallID}
		for _, call := range m.Calls {
			wc := wireCall{ID: call.ID, Type: "function"}
			wc.Function.Name, wc.Function.Arguments = call.Name, wireText(call.Arguments)
			w.Calls = append(w.Calls, wc)
		}
		request.Messages = append(request.Messages, w)
	}
	for _, t := range chat.Tools {
		request.Tools = append(request.Tools, map[string]any{
			"type": "function", "function": map[string]any{"name": t.Name, "description": t.Description, "parameters": t.Parameters},
		})
	}
	switch f {
	case bySchema:
		request.Format = map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "answer", "strict": true, "schema": chat.Schema}}
	case anyObject:
		request.Format = map[string]any{"type": "json_object"}
	}
	var answer wireAnswer
	var m Message
	err := c.call(ctx, "/chat/completions", request, &answer, func() (err error) {
		m, err = answer.message()
		return err
	})
	return m, err
}

// message returns the first choice of an answer.
func (a *wireAnswer) message() (Message, error) {
	if len(a.Choices) == 0 {
		return Message{}, errors.New("the answer has no choices")
	}
	if a.Choices[0].Finish == "length" {
		return Message{}, errors.New("the answer was cut off at its limit of tokens")
	}
	got := a.Choices[0].Message
	m := Message{Role: Assistant, Content: string(got.Content)}
	for _, call := range got.Calls {
		m.Calls = append(m.Calls, Call{ID: call.ID, Name: call.Function.Name, Arguments: string(call.Function.Arguments)})
	}
	if strings.TrimSpace(m.Content) == "" && len(m.Calls) == 0 {
		return Message{}, errors.New("the answer is empty")
	}
	return m, nil
}

// Object returns the last JSON object in a model's text, nil without any: models write before they answer, and put fences of Markdown around the
// answer. It gives up after 64 braces that begin no object.
func Object(text string) json.RawMessage {
	if end := strings.LastIndex(text, "</think>"); end >= 0 {
		text = text[end:]
	}
	var found json.RawMessage
	for failed := 0; failed < 64; {
		begin := strings.IndexByte(text, '{')
		if begin < 0 {
			break
		}
		text = text[begin:]
		var object json.RawMessage
		d := json.NewDecoder(strings.NewReader(text))
		if d.Decode(&object) != nil {
			failed++
			text = text[1:]
			continue
		}
		found, text = object, text[d.InputOffset():]
	}
	return found
}
